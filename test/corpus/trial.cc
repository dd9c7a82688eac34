#include "test/corpus/trial.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "lathe/ir/verify.h"
#include "lathe/lower/external.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "lathe/support/hash.h"

namespace lathe::testing {

namespace {

/// An external compiler that takes about half of all op types.
const bool kRegistered = [] {
  ExternalCompilers::Global().Register(
      {"half",
       [](const Operation* op) {
         return HashString(op->name()) % 2 == 0 ? "" : "of the other half";
       },
       [](const Operation*, const Program&) { return ExternalKernel(); }});
  return true;
}();

/// Where graph_viz draws, gone at the end. (What /dev/null is differs from machine to machine.)
struct Picture {
  std::string path = (std::filesystem::temp_directory_path() /
                      StrCat("lathe-corpus-", static_cast<int64_t>(getpid()), ".dot"))
                         .string();
  ~Picture() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

/// Passes that run otherwise than by their name alone.
const std::map<std::string, PassSetting, std::less<>>& Table() {
  static const Picture kPicture;
  static const std::map<std::string, PassSetting, std::less<>> kTable = {
      {"append_backward", {"", "append_backward", "adds outputs, the gradients", false}},
      {"append_loss", {"", "append_loss{kind=mse}", "replaces the outputs", false}},
      {"scale_loss", {"", "scale_loss", "adds an output, the scaled loss", false}},
      {"master_weights",
       {"", "master_weights", "widens parameters of 16 bits, which no program here has", true}},
      {"training_mode", {"", "training_mode", "changes what is computed", false}},
      {"graph_viz", {"", StrCat("graph_viz{path=", kPicture.path, "}"), "writes a picture", false}},
      {"graph_fuse_compile", {"", "graph_fuse_partition,graph_fuse_compile", "", true}},
      {"graph_unfuse", {"", "graph_fuse_partition,graph_unfuse", "", true}},
      {"all_reduce_deps", {"", "all_reduce_deps", "orders what only several devices have", false}},
      {"multi_devices_check_pass", {"", "multi_devices_check_pass", "changes nothing", false}},
      {"multi_devices_pass", {"", "", "its results are one for each device", false}},
      {"reduce_gradients",
       {"", "append_backward,reduce_gradients", "joins what only several ranks have", false}},
      {"name_sizes", {"", "name_sizes", "names what pictures of 64 and more have", false}},
      {"release_sizes",
       {"", "release_sizes", "releases what the fusion of attention has uncovered", false}},
      {"join_recurrent_steps", {"", "fuse_recurrent,canonicalize,join_recurrent_steps", "", true}},
      {"partition_external", {"", "partition_external{compiler=half}", "", true}},
      {"schedule", {"", "", "is applied to loops, by number", false}},
      {"unify_sizes", {"", "unify_sizes", "what it changes runs with equal sizes only", true}},
      {"initialize", {"", "initialize", "makes another program", false}},
      {"sgd", {"", "append_backward,sgd{momentum=0.9}", "updates parameters", false}},
      {"adam", {"", "append_backward,adam", "updates parameters", false}},
      {"adamw", {"", "append_backward,adamw{accumulate=2}", "updates parameters", false}},
      {"adagrad", {"", "append_backward,adagrad", "updates parameters", false}},
      {"rmsprop", {"", "append_backward,rmsprop", "updates parameters", false}},
      {"lion", {"", "append_backward,lion", "updates parameters", false}},
      {"lamb", {"", "append_backward,lamb", "updates parameters", false}},
      {"training_to_inference",
       {"", "training_mode,training_to_inference{keep=[state]}", "drops what sets", false}},
      {"insert_quantization", {"", "insert_quantization", "rounds what layers read", false}},
      {"quantize_weights", {"", "quantize_weights", "rounds what layers read", false}},
      {"map_op", {"", "map_op{from=nn.relu,to=nn.softsign}", "changes what is computed", false}},
  };
  return kTable;
}

std::string WithRequired(const PassInfo& pass, const std::string& text) {
  std::string pipeline;
  for (const std::string& name : pass.required_passes) {
    pipeline += WithRequired(PassRegistry::Global().Find(name), name) + ",";
  }
  return pipeline + text;
}

/// What a pass may say of a program that is fine: one for training taken to inference, one that has
/// no gradient, one that is trained already, one without parameters.
bool IsRefusal(const Error& error) {
  return error.id() == "pass/vanishing-result" || error.id().starts_with("gradient/") ||
         error.id().starts_with("loss/") || error.id() == "optimizer/twice" ||
         error.id() == "initialize/missing";
}

/// Whether any pass changed the program.
class ChangeWatch : public PassInstrumentation {
 public:
  void AfterPass(const Pass& pass, Program&) override { changed_ |= pass.changed(); }
  bool changed() const { return changed_; }

 private:
  bool changed_ = false;
};

}  // namespace

std::vector<PassSetting> AllSettings() {
  std::vector<PassSetting> settings;
  for (const PassInfo* pass : PassRegistry::Global().All()) {
    const auto row = Table().find(pass->name);
    PassSetting setting{pass->name, pass->name, "", true};
    if (row != Table().end()) setting = row->second;
    setting.pass = pass->name;
    if (!setting.pipeline.empty()) setting.pipeline = WithRequired(*pass, setting.pipeline);
    settings.push_back(std::move(setting));
  }
  for (const NamedPipeline& p : NamedPipelines()) {
    settings.push_back({p.name, StrCat(p.name, "{level=3}"), "", true});
  }
  return settings;
}

Trial RunTrial(const Program& program, const std::string& pipeline,
               const NumericReference* reference) {
  Trial trial;
  Program copy = program.Clone();
  try {
    PassManager manager({.verify_each = true});
    manager.Add(pipeline);
    const auto watch = std::make_shared<ChangeWatch>();
    manager.AddInstrumentation(MakeChangeCheck());
    manager.AddInstrumentation(watch);
    manager.Run(copy);
    trial.changed = watch->changed();
    if (trial.changed && reference != nullptr) {
      trial.compared = true;
      trial.failure = reference->Difference(copy);
    }
  } catch (const Error& error) {
    if (!IsRefusal(error)) trial.failure = error.Render();
  }
  return trial;
}

std::optional<NumericReference> ReferenceFor(const Program& program, NamedValues inputs) {
  try {
    return NumericReference(program, {}, std::move(inputs));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace lathe::testing
