#include <algorithm>
#include <map>
#include <string>

#include "lathe/dialect/shape_inference.h"
#include "lathe/driver/generate.h"
#include "lathe/ir/stated_constraints.h"
#include "lathe/ir/walk.h"
#include "src/driver/decoder_ports.h"
#include "src/driver/program_ports.h"

namespace lathe {
namespace {

class Sizes {
 public:
  Sizes(Program& program, DecoderPorts ports) : program_(program), ports_(std::move(ports)) {
    const Port& ids = PortOf(DecoderInput::kIds);
    batch_ = NamedOr(ids.dims[0], "batch");
    new_ = NamedOr(ids.dims[1], "sequence");
    past_ = ports_.caches.empty() ? Dim(0) : Dim();
    for (const CachePort& cache : ports_.caches) {
      if (cache.is_written) return;
    }
    if (ports_.caches.empty()) return;
    const CachePort& first = ports_.caches[0];
    past_ = NamedOr(ports_.inputs[first.input].dims[first.length_axis], "past");
  }

  void Bind() {
    const std::vector<Operation*> feeds = program_.feeds();
    for (size_t i = 0; i < feeds.size(); ++i) BindInput(i, feeds[i]->result(0));
    for (OpWalker walk(program_.module()); Operation* op = walk.Next();) {
      for (size_t i = 0; i < op->num_results(); ++i) Rename(op->result(i));
      for (const Region& region : op->regions()) {
        for (const Block& block : region) {
          for (size_t i = 0; i < block.num_arguments(); ++i) Rename(block.argument(i));
        }
      }
    }
    ReplaceStatedSizes(program_.module(), [&](std::string_view name) { return Renamed(name); });
    ShapeInferencer(&program_.parameters()).Visit(program_);
  }

 private:
  const Port& PortOf(DecoderInput role) const {
    const auto at = std::ranges::find(ports_.roles, role);
    return ports_.inputs[static_cast<size_t>(at - ports_.roles.begin())];
  }

  static Dim NamedOr(const Dim& dim, const char* name) {
    return dim.is_unknown() ? Dim::Symbol(name) : dim;
  }

  // Sizes of an input as the generator feeds it; unknown: what they are is not known.
  std::vector<Dim> Fed(size_t input) const {
    std::vector<Dim> dims(ports_.inputs[input].dims.size());
    switch (ports_.roles[input]) {
      case DecoderInput::kIds:
      case DecoderInput::kPositions:
        return {batch_, new_};
      case DecoderInput::kMask:
        return {batch_, past_.is_unknown() ? Dim() : past_ + new_};
      case DecoderInput::kCachePositions:
        return {new_};
      case DecoderInput::kLastIndices:
        return {batch_};
      case DecoderInput::kPast: {
        const auto cache = std::ranges::find(ports_.caches, input, &CachePort::input);
        dims[cache->batch_axis] = batch_;
        if (!cache->is_written) dims[cache->length_axis] = past_;
        return dims;
      }
      default:
        return dims;
    }
  }

  bool IsBase(const Dim& dim) const { return dim == batch_ || dim == new_ || dim == past_; }

  // An open size becomes what is fed; one with a name of its own gives that up.
  void BindInput(size_t input, Value value) {
    const auto type = value.type().cast<AnyTensorType>();
    std::vector<Dim> dims(type.dims().begin(), type.dims().end());
    const std::vector<Dim> fed = Fed(input);
    for (size_t i = 0; i < dims.size(); ++i) {
      if (fed[i].is_unknown() || dims[i].is_constant()) continue;
      if (dims[i].is_unknown()) dims[i] = fed[i];
      if (!dims[i].is_symbol() || IsBase(dims[i])) continue;
      renamed_.emplace(dims[i].symbol_name(), fed[i]);
    }
    value.set_type(type.With(type.element(), SymShape(std::move(dims))));
  }

  void Rename(Value value) const {
    const auto type = value.type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return;
    SymShape shape = type.shape();
    for (Dim& dim : shape.dims) {
      dim = dim.Substitute([&](std::string_view symbol) { return Renamed(symbol); });
    }
    value.set_type(type.With(type.element(), shape));
  }

  std::optional<Dim> Renamed(std::string_view symbol) const {
    const auto at = renamed_.find(std::string(symbol));
    return at == renamed_.end() ? std::nullopt : std::optional(at->second);
  }

  Program& program_;
  const DecoderPorts ports_;
  Dim batch_, new_, past_;  // B, S, P
  std::map<std::string, Dim> renamed_;
};

}  // namespace

void BindDecoderSizes(Program& program, const DecoderNames& names) {
  Sizes(program, FindDecoderPorts(InputPorts(program), OutputPorts(program), names)).Bind();
}

}  // namespace lathe
