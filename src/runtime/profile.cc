#include "lathe/runtime/profile.h"

#include <algorithm>
#include <cstdio>

#include "lathe/support/printable.h"
#include "lathe/support/text.h"

namespace lathe::runtime {
namespace {

void AppendJson(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (length == 0 || c < 0x20 || c == '"' || c == '\\') {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      out += escaped;
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  out += '"';
}

void AppendMicroseconds(std::string& out, uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%llu.%03u", static_cast<unsigned long long>(ns / 1000),
                static_cast<unsigned>(ns % 1000));
  out += text;
}

void AppendNumber(std::string& out, const char* name, const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  out += StrCat(",\"", name, "\":", text);
}

void AppendRates(std::string& out, const Profile::Event& e, double peak_gflops,
                 double peak_gbytes) {
  const auto ns = static_cast<double>(e.end_ns - e.begin_ns);
  AppendNumber(out, "bytes", "%.0f", e.bytes);
  if (e.flops >= 0) AppendNumber(out, "flop", "%.0f", e.flops);
  if (ns <= 0) return;
  AppendNumber(out, "gb_per_s", "%.2f", e.bytes / ns);
  if (e.flops < 0) return;
  AppendNumber(out, "gflop_per_s", "%.2f", e.flops / ns);
  if (peak_gflops <= 0 || peak_gbytes <= 0) return;
  const double bound = std::max(e.flops / peak_gflops, e.bytes / peak_gbytes);
  AppendNumber(out, "roofline", "%.3f", bound / ns);
}

}  // namespace

void Profile::Add(std::span<Event> events) {
  const std::lock_guard lock(mutex_);
  const auto id = std::this_thread::get_id();
  const auto found = std::find(threads_.begin(), threads_.end(), id);
  const auto thread = static_cast<uint32_t>(found - threads_.begin());
  if (found == threads_.end()) threads_.push_back(id);
  for (Event& event : events) event.thread = thread;
  events_.insert(events_.end(), events.begin(), events.end());
}

std::vector<Profile::Event> Profile::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void Profile::Clear() {
  const std::lock_guard lock(mutex_);
  events_.clear();
  threads_.clear();
}

std::string Profile::ChromeTrace(const Plan& plan, double peak_gflops, double peak_gbytes) const {
  const std::vector<Event> all = events();
  uint64_t first = ~uint64_t{0};
  for (const Event& e : all) first = std::min(first, e.begin_ns);
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  const char* separator = "";
  for (const Event& e : all) {
    if (e.step >= plan.steps.size()) continue;  // of another plan
    const PlanStep& step = plan.steps[e.step];
    out += StrCat(separator, "\n{\"name\":");
    separator = ",";
    AppendJson(out, step.label);
    out += StrCat(",\"cat\":\"step\",\"ph\":\"X\",\"pid\":1,\"tid\":", e.thread, ",\"ts\":");
    AppendMicroseconds(out, e.begin_ns - first);
    out += ",\"dur\":";
    AppendMicroseconds(out, e.end_ns - e.begin_ns);
    out += StrCat(",\"args\":{\"step\":", e.step);
    AppendRates(out, e, peak_gflops, peak_gbytes);
    out += ",\"origin\":";
    AppendJson(out, step.origin);
    out += "}}";
  }
  out += "\n]}\n";
  return PrintableJson(out);
}

}  // namespace lathe::runtime
