#include "src/lower/element_layout.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/shape.h"

namespace lathe::lower {
namespace {

std::optional<std::vector<int64_t>> ExtentsOf(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  if (!type || !type.is_static()) return {};
  std::vector<int64_t> extents;
  for (const Dim& dim : type.dims()) extents.push_back(dim.value());
  return extents;
}

}  // namespace

bool IsReshape(const Operation& op) {
  constexpr std::string_view kNames[] = {nn::kReshape, nn::kUnsqueeze, nn::kSqueeze, nn::kFlatten,
                                         nn::kViewReshape};
  return std::ranges::find(kNames, op.name()) != std::end(kNames);
}

bool IsLayout(const Operation& op) { return IsReshape(op) || op.name() == nn::TransposeOp::kName; }

ElementLayout::ElementLayout(std::span<const int64_t> extents, std::span<const size_t> loops) {
  axes_.resize(extents.size());
  int64_t stride = 1;
  for (size_t a = extents.size(); a-- > 0;) {
    if (a + 1 < extents.size() && loops[a] != loops[a + 1]) stride = 1;
    if (extents[a] != 1) axes_[a].push_back({loops[a], extents[a], stride});
    stride *= extents[a];
  }
}

bool ElementLayout::Apply(const Operation& op) {
  const auto extents = ExtentsOf(op.result(0));
  if (!extents || std::ranges::find(*extents, 0) != extents->end()) return false;
  if (IsReshape(op)) return Reshape(*extents);
  if (op.name() != nn::TransposeOp::kName) return false;
  const auto perm = nn::TransposeOp(&op).perm();
  std::vector<Axis> moved;
  for (size_t a = 0; a < axes_.size(); ++a) {
    const size_t from = perm ? static_cast<size_t>((*perm)[a]) : axes_.size() - 1 - a;
    if (from >= axes_.size()) return false;
    moved.push_back(axes_[from]);
  }
  axes_ = std::move(moved);
  return true;
}

// Parts are handed out to the new axes in order; one may be cut where an axis ends.
bool ElementLayout::Reshape(std::span<const int64_t> extents) {
  std::deque<Part> left;
  for (const Axis& axis : axes_) left.insert(left.end(), axis.begin(), axis.end());
  axes_.assign(extents.size(), {});
  for (size_t a = 0; a < extents.size(); ++a) {
    for (int64_t wanted = extents[a]; wanted > 1;) {
      if (left.empty()) return false;
      Part& part = left.front();
      if (wanted % part.extent == 0) {
        wanted /= part.extent;
        axes_[a].push_back(part);
        left.pop_front();
      } else if (part.extent % wanted == 0) {
        part.extent /= wanted;
        axes_[a].push_back({part.loop, wanted, part.stride * part.extent});
        wanted = 1;
      } else {
        return false;
      }
    }
  }
  return left.empty();
}

std::vector<ElementLayout::Part> ElementLayout::Parts() const {
  std::vector<Part> parts;
  for (const Axis& axis : axes_) {
    for (const Part& part : axis) {
      const bool joins = !parts.empty() && parts.back().loop == part.loop &&
                         parts.back().stride == part.extent * part.stride;
      if (joins) {
        parts.back() = {part.loop, parts.back().extent * part.extent, part.stride};
      } else {
        parts.push_back(part);
      }
    }
  }
  return parts;
}

}  // namespace lathe::lower
