#pragma once

#include <functional>
#include <vector>

#include "src/lower/compute/elements.h"

namespace lathe::lower {

/// What has the same elements in the same order: before reshapes and their kin.
Value WithoutReshapes(Value v);

/// Computes whole tensors: loops around their elements. Axes are divided, and the loops cut into
/// pieces, where that saves divisions and questions at run time (as at the seams of a concat).
class Nest {
 public:
  Nest(Elements& elements, const Block& function, Block& body, const Machine& machine)
      : elements_(elements), function_(function), body_(body), machine_(machine) {}

  /// Writes all elements of a value of the function to `memory`, row-major.
  void Write(Value value, Value memory);
  /// What happens at each place of a tensor of those dims, `memory` as given to Visit. Where it is
  /// asked beforehand what divisions there are, both stand in for those that are meant.
  using Leaf = std::function<void(Elements& elements, const Place& at, Value memory)>;
  void Visit(const std::vector<Dim>& dims, Value memory, const Leaf& leaf);

 private:
  struct Loop {
    size_t axis;
    Dim extent;
    std::vector<IndexSpace::Piece> pieces;  // at least one, in order
  };

  void Plan();
  IndexSpace Probe();
  bool Divide(const std::vector<IndexSpace::Factor>& factors);
  bool Cut(const std::vector<IndexSpace::Cut>& cuts);
  bool CutAt(size_t loop, const Dim& at);
  bool CutPiece(size_t loop, size_t piece, const Dim& at);
  bool NextPiece();
  Dim EndOf(size_t loop, size_t piece) const;
  Dim PieceExtent(size_t loop) const;
  size_t CountPieces() const;
  void WritePiece(Value memory, Elements& elements);
  void WriteLoops(size_t depth, Value memory, Elements& elements);
  Place AxesAt() const;
  const IndexSpace::Piece& PieceOf(size_t loop) const { return loops_[loop].pieces[piece_[loop]]; }

  Elements& elements_;
  const Block& function_;
  Block& body_;
  const Machine& machine_;
  const Leaf* leaf_ = nullptr;
  Value memory_;
  std::vector<Dim> dims_;
  std::vector<Loop> loops_;  // of the first axis first, the outer ones of an axis before the inner
  std::vector<size_t> piece_;  // of each loop, while writing
  std::vector<Value> sizes_;   // of each loop
  Place at_;                   // in each loop
};

/// Loops over independent elements as they run fast: fused, in vectors, in pieces for threads.
void ScheduleElements(Operation* outermost, const Machine& machine);

}  // namespace lathe::lower
