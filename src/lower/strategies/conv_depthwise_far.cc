#include <algorithm>
#include <functional>

#include "lathe/dialect/nn/view.h"
#include "lathe/support/divide.h"
#include "src/lower/register_tile.h"
#include "src/lower/strategies/conv_job.h"
#include "src/lower/strategies/list.h"

// A depthwise convolution of planes by a kernel whose places lie far apart, so that most of what it
// would copy is padding. Nothing is copied: for each row of outputs and each column of the kernel,
// the outputs that see the input there are added up in registers over the rows of the kernel that
// do.
namespace lathe::lower {
namespace {

constexpr int64_t kApart = 8;           // neighbors of the kernel
constexpr int64_t kFar = 32;            // from its first to its last place
constexpr int64_t kColumns = 1024;      // of outputs, whose sums are in memory at a time
constexpr int64_t kPlanesTogether = 8;  // of an item

class ConvDepthwiseFar {
 public:
  explicit ConvDepthwiseFar(Lowering& l) : job_(l), g_(job_.g) {}

  /// Why not; empty if it fits.
  std::string Refusal();
  void Write();

 private:
  // Outputs of a row of a plane.
  struct Piece {
    Dim image, channel, row;
    Dim column, columns;
  };
  // Of the kernel or of a piece, from the first on.
  struct Span {
    Dim first, end;
  };

  int64_t lanes() const { return job_.lanes; }
  bool IsFar() const;
  LoopBuilder& lb() { return *job_.lb; }
  IndexMath& math() { return *job_.math; }

  void WritePlane(const Dim& image, const Dim& channel);
  void WriteRow(const Piece& piece);
  Span RowsOf(const Dim& row);
  Span ColumnsOf(const Piece& piece, int64_t place);
  void AddColumn(const Piece& piece, const Span& rows, int64_t place);
  Value Sum(const Piece& piece, const Span& rows, int64_t place, const Dim& at, Value live,
            Value so_far);
  void ForVectors(const Span& columns,
                  const std::function<void(const Dim& at, const Dim& live)>& body);

  ConvJob job_;
  ConvGeometry& g_;

  // While writing.
  Value weights_, bias_, sums_;
};

bool ConvDepthwiseFar::IsFar() const {
  for (size_t a = 0; a < g_.rank(); ++a) {
    const int64_t apart = g_.dilations[a];
    if (apart >= kApart && (g_.kernel[a] - 1) * apart >= kFar) return true;
  }
  return false;
}

std::string ConvDepthwiseFar::Refusal() {
  if (std::string why = job_.Refusal(); !why.empty()) return why;
  if (g_.groups == 1) return "there is one group";
  if (g_.channels * g_.filters > 1) return "a group has several channels or filters";
  if (g_.rank() != 2) return "there are no planes";
  if (!IsFar()) return "places of the kernel are near each other";
  if (std::ranges::any_of(g_.strides, [](int64_t s) { return s > 1; })) return "it has strides";
  return job_.before ? "an operand is computed in the same function" : "";
}

// ---- writing ----

void ConvDepthwiseFar::Write() {
  job_.Open();
  const std::vector<int64_t> matrix{g_.groups, g_.places()};
  weights_ = nn::ViewReshapeOp::Create(lb().b(), job_.Argument(1), {.shape = matrix}).y();
  bias_ = job_.Argument(2);
  const int64_t items = CeilDiv(g_.groups, kPlanesTogether);
  math().For(math().Name(g_.batch * items), job_.parallel, [&](const Dim& i) {
    sums_ = job_.Memory(1, kColumns + lanes());
    const Dim image = math().Name(FloorDiv(i, items));
    const Dim first = math().Name(Mod(i, items) * kPlanesTogether);
    math().For(math().Name(Min(g_.groups - first, kPlanesTogether)), false,
               [&](const Dim& c) { WritePlane(image, math().Name(first + c)); });
  });
  job_.Close();
}

void ConvDepthwiseFar::WritePlane(const Dim& image, const Dim& channel) {
  const Dim width = g_.out[1];
  math().For(g_.out[0], false, [&](const Dim& row) {
    math().For(math().Name(CeilDiv(width, kColumns)), false, [&](const Dim& j) {
      const Dim column = math().Name(j * kColumns);
      WriteRow({image, channel, row, column, math().Name(Min(width - column, kColumns))});
    });
  });
}

// What outputs at the left end do not see is added in memory first, the rest in registers.
void ConvDepthwiseFar::WriteRow(const Piece& piece) {
  const Span all{0, piece.columns};
  Value start = job_.Zeros();
  if (bias_) start = lb().Widen(lb().Load(bias_, math().At({piece.channel})), lanes());
  ForVectors(all,
             [&](const Dim& at, const Dim&) { lb().Store(sums_, start, math().At({Dim(0), at})); });
  const Span rows = RowsOf(piece.row);
  std::vector<int64_t> seen_from_first;
  for (int64_t place = 0; place < g_.kernel[1]; ++place) {
    const Dim left = g_.begins[1] - place * g_.dilations[1];
    if (left.UpperBound().value_or(1) <= 0) {
      seen_from_first.push_back(place);
    } else {
      AddColumn(piece, rows, place);
    }
  }
  std::vector<Dim> ends;
  for (const int64_t place : seen_from_first) ends.push_back(ColumnsOf(piece, place).end);
  const Dim first = math().Name(piece.row * g_.out[1] + piece.column);
  ForVectors(all, [&](const Dim& at, const Dim& live) {
    Value sum = lb().Load(sums_, math().At({Dim(0), at}), lanes());
    for (size_t i = 0; i < ends.size(); ++i) {
      const Dim seen = math().Name(Max(Min(ends[i] - at, lanes()), 0));
      const Span some{rows.first, math().Name(rows.end * Min(seen, 1))};
      sum = Sum(piece, some, seen_from_first[i], at, math().At(seen), sum);
    }
    job_.after->Store(lb(), math().At({piece.image, piece.channel, first + at}), lanes(),
                      math().At(live), sum);
  });
}

void ConvDepthwiseFar::ForVectors(const Span& columns,
                                  const std::function<void(const Dim& at, const Dim& live)>& body) {
  const Dim count = math().Name(Max(columns.end - columns.first, 0));
  math().For(math().Name(CeilDiv(count, lanes())), false, [&](const Dim& j) {
    const Dim done = math().Name(j * lanes());
    body(math().Name(columns.first + done), math().Name(Min(count - done, lanes())));
  });
}

// Rows of the kernel that see the input.
ConvDepthwiseFar::Span ConvDepthwiseFar::RowsOf(const Dim& row) {
  const auto before = [&](const Dim& end) {
    return math().Name(Min(CeilDiv(Max(end - row, 0), g_.dilations[0]), g_.kernel[0]));
  };
  return {before(g_.begins[0]), before(g_.begins[0] + g_.in[0])};
}

// Columns of the piece that see the input at that column of the kernel.
ConvDepthwiseFar::Span ConvDepthwiseFar::ColumnsOf(const Piece& piece, int64_t place) {
  const Dim begin = math().Name(g_.begins[1]);
  const int64_t reach = place * g_.dilations[1];
  const auto before = [&](const Dim& end) {
    return math().Name(Min(Max(end - (piece.column + reach), 0), piece.columns));
  };
  return {before(begin), before(math().Name(begin + g_.in[1]))};
}

void ConvDepthwiseFar::AddColumn(const Piece& piece, const Span& rows, int64_t place) {
  ForVectors(ColumnsOf(piece, place), [&](const Dim& at, const Dim& live) {
    const Value lanes_there = math().At(live);
    const Value so_far = lb().Load(sums_, math().At({Dim(0), at}), lanes(), lanes_there);
    const Value sum = Sum(piece, rows, place, at, lanes_there, so_far);
    lb().Store(sums_, sum, math().At({Dim(0), at}), lanes_there);
  });
}

Value ConvDepthwiseFar::Sum(const Piece& piece, const Span& rows, int64_t place, const Dim& at,
                            Value live, Value so_far) {
  const Value start[] = {so_far};
  const Dim from = math().Name(piece.column + at + place * g_.dilations[1] - g_.begins[1]);
  const Value count = math().At(Max(rows.end - rows.first, 0));
  return lb().For(count, start, [&](Value i, std::span<const Value> carried) {
    const Dim k = math().Name(rows.first + math().Of(i));
    const std::vector<Value> index = math().At(
        {piece.image, piece.channel, piece.row + k * g_.dilations[0] - g_.begins[0], from});
    const Value x = job_.input.Load(index, lanes(), live);
    const Value weight = lb().Load(weights_, math().At({piece.channel, k * g_.kernel[1] + place}));
    return std::vector<Value>{MulAdd(lb(), job_.l.machine, x, weight, carried[0])};
  })[0];
}

}  // namespace

bool LowerConvDepthwiseFar(Lowering& l) { return WriteUnlessRefused<ConvDepthwiseFar>(l); }

}  // namespace lathe::lower
