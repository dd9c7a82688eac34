#include "src/lower/strategies/conv_panel.h"

#include <algorithm>

namespace lathe::lower {
namespace {

// Longer kernel rows are walked by a loop.
constexpr int64_t kMostPieces = 8;

}  // namespace

Value ConvPanel::View(Value input) {
  const auto rank = static_cast<int64_t>(input.type().cast<AnyTensorType>().rank());
  if (g_.reads_own_element) return lb_.Grouped(input, std::vector<int64_t>{1, 1, rank - 2});
  if (rank == std::ssize(g_.in) + 2) return input;
  std::vector<int64_t> groups{1, 1};
  groups.insert(groups.end(), g_.merged.begin(), g_.merged.end());
  return lb_.Grouped(input, groups);
}

void ConvPanel::Write(const ConvInput& input, const Part& part, int64_t width, Value panel) {
  if (g_.reads_own_element) {
    Copy(input, part, width, panel);
  } else {
    WriteRuns(input, part, width, panel);
  }
}

void ConvPanel::Copy(const ConvInput& input, const Part& part, int64_t width, Value panel) {
  const Dim positions = g_.positions();
  math_.For(part.channels, false, [&](const Dim& c) {
    for (int64_t j = 0; j < width; j += lanes_) {
      const Dim column = part.first_position + j;
      const bool whole = (positions - column).LowerBound().value_or(0) >= lanes_;
      const Value live = whole ? Value() : math_.At(Max(Min(positions - column, lanes_), 0));
      const auto from = math_.At({part.image, part.first_channel + c, column});
      lb_.Store(panel, input.Load(from, lanes_, live), math_.At({c, Dim(j)}));
    }
  });
}

// Row by row of the output, a vector at a time, from left to right: a store may write too far, the
// next one puts that right.
void ConvPanel::WriteRuns(const ConvInput& input, const Part& part, int64_t width, Value panel) {
  const Dim length = g_.out.back(), positions = g_.positions();
  const Dim end = math_.Name(Min(part.first_position + width, positions));
  const Dim first_row = math_.Name(FloorDiv(part.first_position, length));
  math_.For(FloorDiv(end - 1, length) - first_row + 1, false, [&](const Dim& r) {
    const Dim row = math_.Name(first_row + r);
    const Dim from = math_.Name(Max(part.first_position, row * length));
    const Dim to = math_.Name(Min(end, (row + 1) * length));
    Run run;
    Dim rest = row;
    run.row.resize(g_.rank() - 1);
    for (size_t a = g_.rank() - 1; a-- > 0;) {
      const Dim extent = g_.out[a];
      run.row[a] = a == 0 ? rest : math_.Name(Mod(rest, extent));
      rest = math_.Name(FloorDiv(rest, extent));
    }
    math_.For(CeilDiv(to - from, lanes_), false, [&](const Dim& j) {
      run.at = math_.Name(from + j * lanes_ - row * length);
      run.column = math_.Name(from + j * lanes_ - part.first_position);
      WriteRun(input, part, width, panel, run);
    });
  });
}

void ConvPanel::WriteRun(const ConvInput& input, const Part& part, int64_t width, Value panel,
                         const Run& run) {
  WriteKernelRows(input, part, panel, run, width, {}, 0, 1);
}

// As deep as there are spatial dims. `inside`: 1 if the rows so far are in the input, else 0.
void ConvPanel::WriteKernelRows(const ConvInput& input, const Part& part, Value panel,
                                const Run& run, int64_t width, std::vector<Dim> rows,
                                const Dim& place, const Dim& inside) {
  const size_t a = rows.size();
  const bool one = !part.place.empty();
  if (a + 1 < g_.rank()) {
    math_.For(one ? 1 : g_.kernel[a], false, [&](const Dim& number) {
      const Dim k = one ? part.place[a] : number;
      const Dim in = g_.in[a], begin = g_.begins[a];
      const Dim at = math_.Name(run.row[a] * g_.strides[a] + k * g_.dilations[a]);
      const Dim here = math_.Name(Max(at - begin, 0));
      const Dim fits = Max(Min(at - begin + 1, 1), 0) * Max(Min(in - here, 1), 0);
      std::vector<Dim> deeper = rows;
      deeper.push_back(math_.Name(Min(here, in - 1)));
      WriteKernelRows(input, part, panel, run, width, std::move(deeper),
                      one ? Dim(0) : place * g_.kernel[a] + k, math_.Name(inside * fits));
    });
    return;
  }
  const int64_t length = g_.kernel.back();
  if (one) {
    return WritePieces(input, part, panel, rows, 0, {MakePiece(run, width, part.place[a], inside)});
  }
  if (length > kMostPieces) {
    math_.For(length, false, [&](const Dim& k) {
      WritePieces(input, part, panel, rows, place * length + k, {MakePiece(run, width, k, inside)});
    });
    return;
  }
  std::vector<Piece> pieces;
  for (int64_t k = 0; k < length; ++k) pieces.push_back(MakePiece(run, width, k, inside));
  WritePieces(input, part, panel, rows, place * length, pieces);
}

ConvPanel::Piece ConvPanel::MakePiece(const Run& run, int64_t width, const Dim& at_kernel,
                                      const Dim& inside) {
  const int64_t stride = g_.strides.back();
  const Dim in = g_.in.back(), begin = g_.begins.back();
  const Dim at = run.at * stride + at_kernel * g_.dilations.back();
  Piece piece;
  piece.start = run.column;
  const Dim missing = begin - at_kernel * g_.dilations.back();
  piece.clears = missing.UpperBound().value_or(1) > 0;
  Dim skipped = 0;  // lanes in the padding in front
  if (piece.clears) {
    const Dim reach = Max(begin - at, 0);
    skipped = math_.Name(Min(Min(CeilDiv(reach, stride), lanes_), width - run.column));
  }
  piece.from = math_.Name(Max(at + skipped * stride - begin, 0));
  piece.column = math_.Name(run.column + skipped);
  piece.live = math_.Name(inside * Max(Min(CeilDiv(in - piece.from, stride), lanes_), 0));
  return piece;
}

void ConvPanel::WritePieces(const ConvInput& input, const Part& part, Value panel,
                            const std::vector<Dim>& rows, const Dim& place,
                            const std::vector<Piece>& pieces) {
  std::vector<Value> from = math_.At({part.image, Dim(0)});
  for (const Dim& row : rows) from.push_back(math_.At(row));
  math_.For(part.channels, false, [&](const Dim& c) {
    from[1] = math_.At(part.first_channel + c);
    for (size_t i = 0; i < pieces.size(); ++i) {
      WritePiece(input, panel, pieces[i], from,
                 c * part.places(g_) + place + static_cast<int64_t>(i));
    }
  });
}

void ConvPanel::WritePiece(const ConvInput& input, Value panel, const Piece& piece,
                           std::vector<Value> from, const Dim& depth) {
  if (piece.clears) {
    lb_.Store(panel, lb_.Splat(g_.element, 0, lanes_), math_.At({depth, piece.start}));
  }
  from.push_back(math_.At(piece.from));
  input.Copy(from, lanes_, math_.At(piece.live), g_.strides.back(), panel,
             math_.At({depth, piece.column}));
}

}  // namespace lathe::lower
