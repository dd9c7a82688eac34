#include <algorithm>

#include "lathe/pass/pass_manager.h"
#include "tools/lathe/command.h"

namespace lathe::command {

namespace {

constexpr const char* kPageHead =
    "# Passes\n\n"
    "Every pass and pipeline of Lathe, written from the registry by the command above. How to run, "
    "see, check and bisect\nthem: [optimizing.md](optimizing.md).\n";

const char* KindName(PassOption::Kind kind) {
  static constexpr const char* kNames[] = {"bool", "integer", "number", "text", "list"};
  return kNames[static_cast<size_t>(kind)];
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += StrCat(text.empty() ? "`" : ", `", name, "`");
  return text;
}

/// Inside a table cell a bar would end it.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? "\\|" : std::string(1, c);
  return cell;
}

std::string LevelName(int level) {
  return level == kByFastMath ? StrCat("`--enable ", kFastMath, "`") : StrCat(level);
}

void AddPipelines(std::string& page) {
  page += "\n## Pipelines\n\nAt `-O N` the steps of level N and below run, in this order.\n";
  for (const NamedPipeline& p : NamedPipelines()) {
    page += StrCat("\n### ", p.name, "\n\n", p.doc,
                   "\n\n| level | passes | why there |\n|---|---|---|\n");
    for (const PipelineStep& step : p.steps) {
      page +=
          StrCat("| ", LevelName(step.level), " | `", step.passes, "` | ", Cell(step.why), " |\n");
    }
  }
}

/// "`inference` from level 2", for each pipeline that names the pass.
std::string PipelinesOf(const std::string& pass) {
  std::string text;
  for (const NamedPipeline& p : NamedPipelines()) {
    int level = kByFastMath + 1;
    for (const PipelineStep& step : p.steps) {
      for (const PipelineItem& item : ParsePipeline(step.passes)) {
        if (item.name == pass) level = std::min(level, step.level);
      }
    }
    if (level > kByFastMath) continue;
    text += StrCat(text.empty() ? "" : ", ", "`", p.name,
                   level == kByFastMath ? "` by " : "` from level ", LevelName(level));
  }
  return text;
}

void AddPass(std::string& page, const PassInfo& pass) {
  page += StrCat("\n### ", pass.name, "\n\n", pass.doc, "\n");
  if (!pass.details.empty()) page += StrCat("\n", pass.details, "\n");
  if (!pass.options.empty()) page += "\n| option | kind | default | meaning |\n|---|---|---|---|\n";
  for (const PassOption& o : pass.options) {
    const std::string value = o.default_text.empty() ? "" : StrCat("`", Cell(o.default_text), "`");
    page +=
        StrCat("| `", o.name, "` | ", KindName(o.kind), " | ", value, " | ", Cell(o.doc), " |\n");
  }
  const std::pair<const char*, std::string> facts[] = {
      {"Needs pass attributes", Joined(pass.required_pass_attrs)},
      {"Needs graph attributes", Joined(pass.required_graph_attrs)},
      {"Runs after", Joined(pass.required_passes)},
      {"Refuses to run after", Joined(pass.conflicts)},
      {"Part of", PipelinesOf(pass.name)},
  };
  std::string list;
  for (const auto& [what, names] : facts) {
    if (!names.empty()) list += StrCat("- ", what, ": ", names, "\n");
  }
  if (!list.empty()) page += "\n" + list;
}

}  // namespace

std::string PassList() {
  std::string text;
  for (const PassInfo* pass : PassRegistry::Global().All()) {
    text += StrCat(pass->name, "\n    ", pass->doc, "\n");
    for (const PassOption& option : pass->options) {
      text += StrCat("    ", option.name, "=", option.default_text, "  ", option.doc, "\n");
    }
  }
  for (const NamedPipeline& p : NamedPipelines()) {
    text += StrCat(p.name, " (pipeline)\n    ", p.doc, "\n");
    for (const PipelineStep& step : p.steps) {
      const std::string level = step.level == kByFastMath ? kFastMath : StrCat("-O", step.level);
      text += StrCat("    ", level, "  ", step.passes, "\n");
    }
  }
  return text;
}

std::string PassPage() {
  std::string page = kPageHead;
  AddPipelines(page);
  page += "\n## All passes\n\n| pass | what it does |\n|---|---|\n";
  for (const PassInfo* pass : PassRegistry::Global().All()) {
    page += StrCat("| [", pass->name, "](#", pass->name, ") | ", Cell(pass->doc), " |\n");
  }
  for (const PassInfo* pass : PassRegistry::Global().All()) AddPass(page, *pass);
  return page;
}

}  // namespace lathe::command
