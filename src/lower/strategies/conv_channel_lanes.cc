#include <algorithm>
#include <functional>

#include "lathe/support/divide.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/conv_job.h"
#include "src/lower/strategies/list.h"
#include "src/lower/windows.h"

// A depthwise convolution whose channels fill the lanes of vectors: what is read of the input is
// turned, padded to the left and right, and sums are turned back. Rows of the kernel that see
// nothing but padding are left out. For planes that would fill vectors badly.
namespace lathe::lower {
namespace {

constexpr int64_t kFewPlaces = 36;        // of a kernel, that conv_depthwise is better for
constexpr int64_t kColumns = 64;          // of outputs, of a block
constexpr int64_t kPositions = 2048;      // of outputs, of a block
constexpr int64_t kInputBytes = 1 << 18;  // of the input, that a block reads
constexpr int64_t kMostInput = 1 << 19;   // the same at most
constexpr int64_t kTile = 8;              // outputs whose sums are in registers

class ConvChannelLanes {
 public:
  explicit ConvChannelLanes(Lowering& l) : job_(l), g_(job_.g) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // Outputs of some rows and columns of as many planes as there are lanes.
  struct Piece {
    Dim image, block;   // number of the planes among those of an image
    Dim channel, live;  // the first one, and how many there are
    Dim row, rows, column, columns;
  };
  // Of the input, that a piece reads: the first row that is in memory, and columns of a row.
  struct Input {
    Dim row, rows, columns;
  };
  // Rows of the kernel that see the input, from the first on.
  struct Span {
    Dim first, end;
  };
  using Sums = std::vector<Value>;
  using LoadChannel = std::function<Value(const Dim& channel)>;

  // Of a plane of one spatial dim there is one row.
  bool has_rows() const { return g_.rank() > 1; }
  size_t last() const { return g_.rank() - 1; }
  int64_t rows_of_kernel() const { return has_rows() ? g_.kernel[0] : 1; }
  int64_t row_stride() const { return has_rows() ? g_.strides[0] : 1; }
  int64_t row_dilation() const { return has_rows() ? g_.dilations[0] : 1; }
  int64_t reach() const {
    return has_rows() ? g_.Reach(0, 1).value() : 1;
  }  // of the kernel, in rows
  Dim out_rows() const { return has_rows() ? g_.out[0] : Dim(1); }
  Dim in_rows() const { return has_rows() ? g_.in[0] : Dim(1); }
  Dim top() const { return has_rows() ? g_.begins[0] : Dim(0); }
  std::string WidthRefusal();
  int64_t columns() const;
  int64_t InputPositions() const;
  int64_t lanes() const { return job_.lanes; }
  // Whether rows, which are narrow, are read whole and one behind the other.
  bool TurnsPlanes() const { return has_rows() && g_.strides[last()] == 1 && !job_.before; }
  LoopBuilder& lb() { return *job_.lb; }
  IndexMath& math() { return *job_.math; }

  Value PackWeights();
  void WriteRows(const Piece& piece);
  void WriteBlock(const Piece& piece);
  Input Turn(const Piece& piece);
  void TurnPlane(const Piece& piece, const Input& input);
  void WriteTurned(const Piece& piece, const Dim& to, const LoadChannel& load);
  void TurnRow(const Piece& piece, const Input& input, const Dim& row);
  void Clear(Value memory, const Dim& first, const Dim& count);
  void Add(const Piece& piece, const Input& input, const Dim& row);
  void WriteTile(const Piece& piece, const Input& input, const Dim& row, const Span& span,
                 const Dim& column);
  Sums AddColumn(const Piece& piece, const Input& input, const Dim& row, const Span& span,
                 const Dim& column, const Dim& place, const Sums& sums);
  void TurnBack(const Piece& piece);
  void TurnTile(const Piece& piece, const Dim& sum, const Dim& position, const Dim& live);

  ConvJob job_;
  ConvGeometry& g_;

  // While writing.
  Value weights_, bias_, input_, sums_, turned_;
  Dim most_rows_;  // of outputs of a piece
};

int64_t ConvChannelLanes::columns() const {
  const Dim& out = g_.out[last()];
  return out.is_constant() ? std::clamp<int64_t>(out.value(), 1, kColumns) : kColumns;
}

// That there is memory for: of at least one row of outputs.
int64_t ConvChannelLanes::InputPositions() const {
  const int64_t bytes = lanes() * BitWidth(g_.element) / 8;
  return std::max(kInputBytes / bytes, reach() * g_.Reach(last(), columns()).value());
}

std::string ConvChannelLanes::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  if (g_.groups == 1) return "there is one group";
  if (g_.channels * g_.filters > 1) return "a group has several channels or filters";
  if (g_.rank() > 2) return "there are three spatial dims";
  if (g_.places() == 1) return "the kernel has one element";
  if (!job_.weights_are_constant()) return "the weights are not known";
  if (g_.groups < lanes()) return "the channels do not fill a vector";
  if (g_.is_static() && g_.places() <= kFewPlaces) return "the kernel is small";
  if (std::string why = WidthRefusal(); !why.empty()) return why;
  const int64_t bytes = InputPositions() * lanes() * BitWidth(g_.element) / 8;
  return bytes > kMostInput ? "what a row reads is too large" : "";
}

// Wide planes fill vectors well. Where elements a stride apart would have to be brought together,
// turning them takes no longer.
std::string ConvChannelLanes::WidthRefusal() {
  if (g_.strides[last()] > 1) return "";
  const Condition is_narrow = Condition::AtMost(g_.out[last()], lanes());
  if (is_narrow.Prove() == Truth::kFalse) return "the planes are wide";
  if (is_narrow.Prove() == Truth::kUnknown) job_.l.where = is_narrow;
  return "";
}

// ---- writing ----

// [blocks of channels, places, channels of a block].
Value ConvChannelLanes::PackWeights() {
  const int64_t blocks = CeilDiv(g_.groups, lanes());
  const Shape shape = job_.weight_shape();
  PackedLayout layout;
  layout.argument = job_.anchor->operand(1).index();
  layout.padded = {blocks * lanes()};
  layout.padded.insert(layout.padded.end(), shape.begin() + 1, shape.end());
  layout.split = {blocks, lanes(), g_.places()};
  layout.order = {0, 2, 1};
  return job_.l.Pack(std::move(layout));
}

void ConvChannelLanes::Write() {
  job_.Open();
  weights_ = PackWeights();
  bias_ = job_.Argument(2);
  const Dim columns = math().Name(Max(Min(g_.out[last()], this->columns()), 1));
  const Dim of_row = g_.Reach(last(), columns);
  const Dim in_memory = Max(FloorDiv(InputPositions(), math().Name(of_row)) - reach(), 0);
  const Dim fitting =
      math().Name(Min(FloorDiv(in_memory, row_stride()) + 1, FloorDiv(kPositions, columns)));
  const Dim bands = math().Name(CeilDiv(out_rows(), Max(fitting, 1)));
  most_rows_ = math().Name(CeilDiv(out_rows(), Max(bands, 1)));
  const int64_t blocks = CeilDiv(g_.groups, lanes());
  math().For(math().Name(g_.batch * bands * blocks), job_.parallel, [&](const Dim& i) {
    Piece piece;
    const Dim of_image = math().Name(Mod(i, math().Name(Max(bands * blocks, 1))));
    piece.image = math().Name(FloorDiv(i, math().Name(Max(bands * blocks, 1))));
    piece.block = math().Name(FloorDiv(of_image, Max(bands, 1)));
    piece.channel = math().Name(piece.block * lanes());
    piece.live = math().Name(Min(g_.groups - piece.channel, lanes()));
    piece.row = math().Name(Mod(of_image, Max(bands, 1)) * most_rows_);
    piece.rows = math().Name(Max(Min(out_rows() - piece.row, most_rows_), 0));
    WriteRows(piece);
  });
  job_.Close();
}

void ConvChannelLanes::WriteRows(const Piece& piece) {
  const int64_t beyond = lanes() + kTile * g_.strides[last()];  // that vectors and tiles reach
  input_ = job_.Memory(InputPositions() + beyond, lanes());
  sums_ = job_.Memory(kPositions + lanes() + kTile, lanes());
  turned_ = job_.Memory(lanes(), lanes());
  math().For(CeilDiv(g_.out[last()], columns()), false, [&](const Dim& j) {
    Piece block = piece;
    block.column = math().Name(j * columns());
    block.columns = math().Name(Min(g_.out[last()] - block.column, columns()));
    WriteBlock(block);
  });
}

void ConvChannelLanes::WriteBlock(const Piece& piece) {
  const Input input = Turn(piece);
  math().For(piece.rows, false, [&](const Dim& row) { Add(piece, input, row); });
  Clear(sums_, math().Name(piece.rows * piece.columns), lanes());
  TurnBack(piece);
}

// Rows of the input that the piece reads, without those of the padding, and zeros for the outputs
// that tiles at the end compute besides.
ConvChannelLanes::Input ConvChannelLanes::Turn(const Piece& piece) {
  Input input;
  const Dim first = piece.row * row_stride();
  input.row = math().Name(Max(first - top(), 0));
  const Dim end = first + (piece.rows - 1) * row_stride() + reach() - top();
  input.rows = math().Name(Max(Min(end, in_rows()) - input.row, 0));
  input.columns = math().Name(g_.Reach(last(), piece.columns));
  if (TurnsPlanes()) {
    TurnPlane(piece, input);
  } else {
    math().For(input.rows, false, [&](const Dim& row) { TurnRow(piece, input, row); });
  }
  Clear(input_, math().Name(input.rows * input.columns), kTile * g_.strides[last()]);
  return input;
}

// All rows are turned as one, to where they end with the last one's padding. From the first on they
// then make room for padding: none is written where another one has not been read.
void ConvChannelLanes::TurnPlane(const Piece& piece, const Input& input) {
  const Dim in = g_.in[last()], left = math().Name(Min(g_.begins[last()], input.columns));
  const Dim padding = math().Name(input.columns - in);
  const Dim turned = math().Name(input.rows * padding), count = math().Name(input.rows * in);
  const Dim first = math().Name(input.row * in);
  const Value planes = lb().Grouped(job_.Argument(0), std::vector<int64_t>{1, 1, 2});
  math().For(CeilDiv(count, lanes()), false, [&](const Dim& j) {
    const Dim at = math().Name(j * lanes());
    const Value live = math().At(Min(count - at, lanes()));
    WriteTurned(piece, math().Name(turned + at), [&](const Dim& channel) {
      const auto from = math().At({piece.image, piece.channel + channel, first + at});
      return lb().Load(planes, from, lanes(), live);
    });
  });
  math().For(input.rows, false, [&](const Dim& row) {
    const Dim to = math().Name(row * input.columns), from = math().Name(turned + row * in);
    Clear(input_, to, left);
    math().For(in, false, [&](const Dim& i) {
      const Value column = lb().Load(input_, math().At({from + i, Dim(0)}), lanes());
      lb().Store(input_, column, math().At({to + left + i, Dim(0)}));
    });
    Clear(input_, math().Name(to + left + in), padding - left);
  });
}

// A vector of each channel becomes one of each position, from `to` on.
void ConvChannelLanes::WriteTurned(const Piece& piece, const Dim& to, const LoadChannel& load) {
  std::vector<Value> rows;
  for (int64_t i = 0; i < lanes(); ++i) {
    const bool is_there = g_.groups % lanes() == 0;
    rows.push_back(load(is_there ? Dim(i) : Min(piece.live - 1, i)));
  }
  const std::vector<Value> turned = lb().Transpose(rows);
  for (int64_t i = 0; i < lanes(); ++i) {
    lb().Store(input_, turned[static_cast<size_t>(i)], math().At({to + i, Dim(0)}));
  }
}

// Vectors reach into what is written after them.
void ConvChannelLanes::TurnRow(const Piece& piece, const Input& input, const Dim& row) {
  const Dim before = piece.column * g_.strides[last()];  // from the beginning of the padding
  const Dim left = math().Name(Min(Max(g_.begins[last()] - before, 0), input.columns));
  const Dim from = math().Name(Max(before - g_.begins[last()], 0));
  const Dim count = math().Name(Max(Min(g_.in[last()] - from, input.columns - left), 0));
  const Dim first = math().Name(row * input.columns);
  Clear(input_, first, left);
  math().For(CeilDiv(count, lanes()), false, [&](const Dim& j) {
    const Dim at = math().Name(j * lanes());
    const Value live = math().At(Min(count - at, lanes()));
    WriteTurned(piece, math().Name(first + left + at), [&](const Dim& channel) {
      std::vector<Value> index = math().At({piece.image, piece.channel + channel});
      if (has_rows()) index.push_back(math().At(input.row + row));
      index.push_back(math().At(from + at));
      return job_.input.Load(index, lanes(), live);
    });
  });
  Clear(input_, math().Name(first + left + count), input.columns - left - count);
}

void ConvChannelLanes::Clear(Value memory, const Dim& first, const Dim& count) {
  math().For(count, false, [&](const Dim& i) {
    lb().Store(memory, job_.Zeros(), math().At({first + i, Dim(0)}));
  });
}

void ConvChannelLanes::Add(const Piece& piece, const Input& input, const Dim& row) {
  const Dim above = (piece.row + row) * row_stride();  // from the beginning of the padding
  const auto rows_before = [&](const Dim& end) {
    return math().Name(Min(CeilDiv(Max(end - above, 0), row_dilation()), rows_of_kernel()));
  };
  const Span span{rows_before(top()), rows_before(top() + in_rows())};
  math().For(CeilDiv(piece.columns, kTile), false,
             [&](const Dim& i) { WriteTile(piece, input, row, span, math().Name(i * kTile)); });
}

// Places of the kernel in the order that kKernelRows says.
void ConvChannelLanes::WriteTile(const Piece& piece, const Input& input, const Dim& row,
                                 const Span& span, const Dim& column) {
  Value start = job_.Zeros();
  if (bias_) {
    const Value live = g_.groups % lanes() == 0 ? Value() : math().At(piece.live);
    start = lb().Load(bias_, math().At({piece.channel}), lanes(), live);
  }
  Sums sums(kTile, start);
  const int64_t together = TileRowsFor(rows_of_kernel(), kKernelRows);
  for (int64_t first = 0; first < rows_of_kernel(); first += together) {
    const int64_t end = std::min(first + together, rows_of_kernel());
    const Span some{math().Name(Max(span.first, first)), math().Name(Min(span.end, end))};
    sums = lb().For(g_.kernel[last()], sums, [&](Value k, std::span<const Value> carried) {
      return AddColumn(piece, input, row, some, column, math().Of(k),
                       {carried.begin(), carried.end()});
    });
  }
  for (int64_t i = 0; i < kTile; ++i) {
    lb().Store(sums_, sums[static_cast<size_t>(i)],
               math().At({row * piece.columns + column + i, Dim(0)}));
  }
}

ConvChannelLanes::Sums ConvChannelLanes::AddColumn(const Piece& piece, const Input& input,
                                                   const Dim& row, const Span& span,
                                                   const Dim& column, const Dim& place,
                                                   const Sums& sums) {
  const Dim above = (piece.row + row) * row_stride() - top() - input.row;
  const Dim at = math().Name(column * g_.strides[last()] + place * g_.dilations[last()]);
  const Value rows = math().At(Max(span.end - span.first, 0));
  return lb().For(rows, sums, [&](Value i, std::span<const Value> carried) {
    const Dim k = math().Name(span.first + math().Of(i));
    const Value weight = lb().Load(
        weights_, math().At({piece.block, k * g_.kernel[last()] + place, Dim(0)}), lanes());
    const Dim from = math().Name((above + k * row_dilation()) * input.columns + at);
    Sums next;
    for (size_t q = 0; q < carried.size(); ++q) {
      const Dim position = from + static_cast<int64_t>(q) * g_.strides[last()];
      const Value x = lb().Load(input_, math().At({position, Dim(0)}), lanes());
      next.push_back(MulAdd(lb(), job_.l.machine, x, weight, carried[q]));
    }
    return next;
  });
}

// Sums of several rows lie one after the other if they have all columns.
void ConvChannelLanes::TurnBack(const Piece& piece) {
  const Dim blocks = CeilDiv(g_.out[last()], columns());
  const Dim is_one = math().Name(Max(Dim(2) - blocks, 0));
  const Dim runs = math().Name(piece.rows * (Dim(1) - is_one) + is_one);
  const Dim positions = math().Name(piece.columns * (piece.rows * is_one + Dim(1) - is_one));
  math().For(runs, false, [&](const Dim& run) {
    const Dim first = math().Name((piece.row + run) * g_.out[last()] + piece.column);
    math().For(CeilDiv(positions, lanes()), false, [&](const Dim& j) {
      const Dim at = math().Name(j * lanes());
      TurnTile(piece, math().Name(run * piece.columns + at), math().Name(first + at),
               math().Name(Min(positions - at, lanes())));
    });
  });
}

void ConvChannelLanes::TurnTile(const Piece& piece, const Dim& sum, const Dim& position,
                                const Dim& live) {
  std::vector<Value> rows;
  for (int64_t i = 0; i < lanes(); ++i) {
    rows.push_back(lb().Load(sums_, math().At({sum + i, Dim(0)}), lanes()));
  }
  const std::vector<Value> channels = lb().Transpose(rows);
  for (int64_t i = 0; i < lanes(); ++i) {
    lb().Store(turned_, channels[static_cast<size_t>(i)], math().At({Dim(i), Dim(0)}));
  }
  const auto store = [&](const Dim& times, const Value& lanes_there) {
    math().For(times, false, [&](const Dim&) {
      math().For(piece.live, false, [&](const Dim& i) {
        job_.after->Store(lb(), math().At({piece.image, piece.channel + i, position}), lanes(),
                          lanes_there, lb().Load(turned_, math().At({i, Dim(0)}), lanes()));
      });
    });
  };
  const Dim whole = math().Name(FloorDiv(live, lanes()));
  store(whole, {});
  store(Dim(1) - whole, math().At(live));
}

}  // namespace

bool LowerConvChannelLanes(Lowering& l) { return WriteUnlessRefused<ConvChannelLanes>(l); }

}  // namespace lathe::lower
