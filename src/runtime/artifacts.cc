#include "lathe/runtime/artifacts.h"

#include <algorithm>
#include <map>

#include "lathe/runtime/lx_file.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/hash.h"
#include "lathe/support/safetensors.h"
#include "src/runtime/graph_format.h"
#include "src/runtime/in_file.h"
#include "src/runtime/plan_check.h"
#include "src/runtime/shared_library.h"

namespace lathe::runtime {
namespace {

// Names of constants; "p0", "p1", ... if they have none.
std::vector<std::string> ParameterNames(const Plan& plan) {
  if (plan.constant_names.size() == plan.constants.size()) return plan.constant_names;
  std::vector<std::string> names;
  for (size_t i = 0; i < plan.constants.size(); ++i) names.push_back(StrCat("p", i));
  return names;
}

// First what fills whole cache lines, then by alignment: all lie as they should without gaps.
void SortForFile(std::vector<std::pair<std::string, Tensor>>& tensors) {
  constexpr size_t kLine = 64;
  const auto rank = [](const std::pair<std::string, Tensor>& t) {
    const size_t alignment = AlignmentOf(t.second.element_type());
    return t.second.byte_size() % kLine == 0 ? 0 : kLine - std::min(alignment, kLine - 1);
  };
  std::stable_sort(tensors.begin(), tensors.end(),
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
}

std::shared_ptr<Buffer> BufferOf(std::string bytes) {
  const auto owner = std::make_shared<std::string>(std::move(bytes));
  return Buffer::Wrap(owner->data(), owner->size(), owner);
}

std::span<const std::byte> BytesOf(const Buffer& buffer) { return {buffer.data(), buffer.size()}; }

Error ParameterError(ErrorCode code, const std::string& message) {
  return {code, "artifact/parameter", message};
}

void CheckParameter(const std::string& name, const Tensor& tensor, ElementType element,
                    const std::vector<Dim>& dims) {
  const Shape& shape = tensor.shape();
  const bool fits =
      tensor.element_type() == element &&
      std::equal(dims.begin(), dims.end(), shape.begin(), shape.end(),
                 [](const Dim& dim, int64_t extent) { return dim.IsConstant(extent); });
  if (fits) return;
  throw ParameterError(ErrorCode::kShape,
                       StrCat("parameter '", name, "' is ", tensor.TypeString(), "; expected ",
                              Name(element), SymShape(dims).ToString()));
}

// Index of each name in `names`.
std::vector<size_t> PlacesOf(const NamedTensors& tensors, const std::vector<std::string>& names) {
  std::map<std::string_view, size_t> places;  // looked up only
  for (size_t i = 0; i < names.size(); ++i) places.emplace(names[i], i);
  std::vector<size_t> result;
  std::vector<bool> seen(names.size());
  for (const auto& [name, tensor] : tensors) {
    const auto found = places.find(name);
    if (found == places.end()) {
      Error error =
          ParameterError(ErrorCode::kNotFound, StrCat("the program has no parameter '", name, "'"));
      if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
      throw std::move(error);
    }
    if (seen[found->second]) {
      throw ParameterError(ErrorCode::kInvalidArgument,
                           StrCat("parameter '", name, "' is given twice"));
    }
    seen[found->second] = true;
    result.push_back(found->second);
  }
  return result;
}

void TakeParameters(Plan& plan, const std::vector<PlanValue>& wanted, const NamedTensors& tensors) {
  const std::vector<size_t> places = PlacesOf(tensors, plan.constant_names);
  std::vector<bool> given(wanted.size());
  for (size_t k = 0; k < places.size(); ++k) {
    const size_t i = places[k];
    CheckParameter(tensors[k].first, tensors[k].second, wanted[i].element, wanted[i].dims);
    plan.constants[i] = tensors[k].second;
    given[i] = true;
  }
  const auto missing = std::find(given.begin(), given.end(), false);
  if (missing == given.end()) return;
  const auto i = static_cast<size_t>(missing - given.begin());
  throw ParameterError(
      ErrorCode::kNotFound,
      StrCat("parameter '", plan.constant_names[i], "' : ", Name(wanted[i].element),
             SymShape(wanted[i].dims).ToString(), " is missing"));
}

Error OtherLibrary() {
  return Error(ErrorCode::kInvalidArgument, "artifact/library",
               "graph and library are not of one build")
      .Hint("`lathe compile MODEL -o FILE.json` writes all parts anew");
}

// Kernels of the library in the order of the graph.
PlanCode CodeOf(KernelNames library, const graph::Content& content) {
  if (StrCat(library.Checksum()) != content.library || library.code.target != content.target) {
    throw OtherLibrary().Note(StrCat("the graph is for '", content.target, "', the library for '",
                                     library.code.target, "'"));
  }
  std::map<std::string_view, uint64_t> entries;
  for (size_t i = 0; i < library.names.size(); ++i) {
    entries.emplace(library.names[i], library.code.entries[i]);
  }
  std::vector<uint64_t> in_order;
  for (const std::string& name : content.kernels) {
    const auto found = entries.find(name);
    if (found == entries.end()) {
      throw Error(ErrorCode::kNotFound, "artifact/library",
                  StrCat("the library has no kernel '", name, "'"));
    }
    in_order.push_back(found->second);
  }
  library.code.entries = std::move(in_order);
  return std::move(library.code);
}

// "a/b.json" -> "a/b.so".
std::string Beside(const std::string& graph, const char* extension) {
  const size_t size = graph.size() - FileExtension(graph).size();
  return graph.substr(0, size) + extension;
}

// Those of another build are told by their metadata; files from elsewhere have none.
NamedTensors ReadParameters(const std::string& path, const std::string& library) {
  SafeTensors file = ReadSafeTensors(path);
  for (const auto& [key, value] : file.metadata) {
    if (key != kLibraryKey || value == library) continue;
    throw ParameterError(ErrorCode::kInvalidArgument,
                         "these parameters were written with another library")
        .At(path)
        .Hint("`lathe compile MODEL -o FILE.json` writes all parts anew");
  }
  return std::move(file.tensors);
}

constexpr const char* kChecksumKey = "lathe.checksum";  // in the metadata of parameters

std::string ChecksumOf(const NamedTensors& tensors) {
  uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors) {
    sum = HashBytes(tensor.raw(), tensor.byte_size(), HashString(name, sum));
  }
  return StrCat(sum);
}

}  // namespace

ArtifactFiles Complete(ArtifactFiles files) {
  if (files.library.empty()) files.library = Beside(files.graph, ".so");
  if (files.parameters.empty()) files.parameters = Beside(files.graph, ".safetensors");
  return files;
}

Artifacts MakeArtifacts(const Plan& plan) {
  const std::vector<std::string> names = ParameterNames(plan);
  std::vector<std::string> by_kernel;
  const KernelNames kernels = graph::NameKernels(plan, by_kernel);
  Artifacts artifacts;
  artifacts.graph = graph::Write(plan, names, by_kernel, kernels.Checksum());
  artifacts.library = BufferOf(WriteSharedLibrary(kernels));
  for (size_t i = 0; i < names.size(); ++i) {
    artifacts.parameters.emplace_back(names[i], plan.constants[i]);
  }
  return artifacts;
}

std::shared_ptr<const Plan> PlanOf(const Artifacts& artifacts) {
  LATHE_CHECK(artifacts.library != nullptr);
  graph::Content content = graph::Read(artifacts.graph);
  auto plan = std::make_shared<Plan>(std::move(content.plan));
  plan->code = CodeOf(ReadSharedLibrary(BytesOf(*artifacts.library)), content);
  TakeParameters(*plan, content.parameters, artifacts.parameters);
  return plan;
}

void SaveArtifacts(const Artifacts& artifacts, const ArtifactFiles& files) {
  const ArtifactFiles all = Complete(files);
  const KernelNames library = ReadSharedLibrary(BytesOf(*artifacts.library));
  SafeTensors content{artifacts.parameters, {}};
  SortForFile(content.tensors);
  content.metadata = {{kChecksumKey, ChecksumOf(content.tensors)},
                      {kLibraryKey, StrCat(library.Checksum())}};
  FileWriter parameter_file(all.parameters), library_file(all.library), graph_file(all.graph);
  WriteSafeTensors(parameter_file, content);
  library_file.Write(BytesOf(*artifacts.library));
  graph_file.Write(artifacts.graph);
  FileWriter::CommitTogether({&parameter_file, &library_file, &graph_file});
}

Artifacts LoadArtifacts(const ArtifactFiles& files) {
  const ArtifactFiles all = Complete(files);
  Artifacts artifacts;
  artifacts.graph = ReadFile(all.graph);
  artifacts.library = Buffer::MapFile(all.library);
  const graph::Content content = InFile(all.graph, [&] { return graph::Read(artifacts.graph); });
  artifacts.parameters = ReadParameters(all.parameters, content.library);
  return artifacts;
}

std::shared_ptr<const Plan> LoadPlan(const ArtifactFiles& files) {
  const ArtifactFiles all = Complete(files);
  graph::Content content = InFile(all.graph, [&] { return graph::Read(ReadFile(all.graph)); });
  auto plan = std::make_shared<Plan>(std::move(content.plan));
  const auto library = Buffer::MapFile(all.library);
  KernelNames kernels = InFile(all.library, [&] { return ReadSharedLibrary(BytesOf(*library)); });
  plan->code = InFile(all.graph, [&] { return CodeOf(std::move(kernels), content); });
  const NamedTensors parameters = ReadParameters(all.parameters, content.library);
  InFile(all.parameters, [&] { TakeParameters(*plan, content.parameters, parameters); });
  return plan;
}

Executor LoadExecutor(const ArtifactFiles& files, ExecutorOptions options) {
  std::shared_ptr<const Plan> plan = LoadPlan(files);
  return InFile(files.graph, [&] { return Executor(std::move(plan), std::move(options)); });
}

void VerifyArtifacts(const ArtifactFiles& files) {
  const ArtifactFiles all = Complete(files);
  const std::shared_ptr<const Plan> plan = LoadPlan(all);
  InFile(all.graph, [&] { CheckPlan(*plan, plan->code.entries.size()); });
  const SafeTensors parameters = ReadSafeTensors(all.parameters);
  for (const auto& [key, value] : parameters.metadata) {
    if (key != kChecksumKey || value == ChecksumOf(parameters.tensors)) continue;
    throw ParameterError(ErrorCode::kParse, "the parameters are damaged").At(all.parameters);
  }
}

std::shared_ptr<const Plan> WithParameters(const Plan& plan, const NamedTensors& parameters) {
  auto changed = std::make_shared<Plan>(plan);
  const std::vector<size_t> places = PlacesOf(parameters, ParameterNames(plan));
  for (size_t k = 0; k < places.size(); ++k) {
    Tensor& constant = changed->constants[places[k]];
    const auto& [name, tensor] = parameters[k];
    CheckParameter(name, tensor, constant.element_type(),
                   {constant.shape().begin(), constant.shape().end()});
    constant = tensor;
  }
  return changed;
}

}  // namespace lathe::runtime
