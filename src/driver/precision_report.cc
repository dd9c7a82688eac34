#include "lathe/driver/precision_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lathe/driver/compile_engine.h"
#include "lathe/support/clock.h"
#include "lathe/support/error.h"
#include "src/driver/kernel_errors.h"
#include "src/driver/squared_error.h"
#include "src/driver/wide_program.h"

namespace lathe {
namespace {

constexpr int kLeastRounds = 3;
constexpr int kMostRounds = 1000;

// What a level promises of an output, however small the error of `strict`.
double Promised(Precision level) {
  if (level <= Precision::kF32) return 0;
  return level == Precision::kHigh ? 1e-5 : 2e-2;
}

/// Of an output over all runs.
struct OutputSums {
  SquaredError error;
  int64_t elements = 0, different = 0;
  int64_t rows = 0, same_rows = 0;

  void Add(const Tensor& exact, const Tensor& other);
  OutputError Report(const std::string& name) const;

 private:
  void AddElement(double exact, double other, bool is_float);
  void AddRows(const std::vector<double>& exact, const std::vector<double>& other, int64_t width);
};

bool HasNumbers(const Tensor& t) {
  return t.element_type() != ElementType::kString && !IsComplex(t.element_type());
}

void OutputSums::Add(const Tensor& exact, const Tensor& other) {
  elements += exact.num_elements();
  if (exact.shape() != other.shape()) {  // sizes that data decide
    different += std::max(exact.num_elements(), other.num_elements());
    return;
  }
  if (!HasNumbers(exact)) {
    different += exact == other ? 0 : exact.num_elements();
    return;
  }
  const std::vector<double> a = ToDoubles(exact), b = ToDoubles(other);
  const bool is_float = IsFloat(exact.element_type());
  for (size_t i = 0; i < a.size(); ++i) AddElement(a[i], b[i], is_float);
  if (is_float && exact.rank() > 0 && exact.dim(-1) > 1) AddRows(a, b, exact.dim(-1));
}

void OutputSums::AddElement(double exact, double other, bool is_float) {
  const bool same = exact == other || (std::isnan(exact) && std::isnan(other));
  const bool finite = std::isfinite(exact) && std::isfinite(other);
  if (!same && (!is_float || !finite)) ++different;
  if (finite) error.Add(exact, other);
}

void OutputSums::AddRows(const std::vector<double>& exact, const std::vector<double>& other,
                         int64_t width) {
  for (auto a = exact.begin(), b = other.begin(); a != exact.end(); a += width, b += width) {
    const auto place_a = std::max_element(a, a + width) - a;
    const auto place_b = std::max_element(b, b + width) - b;
    ++rows;
    if (place_a == place_b) ++same_rows;
  }
}

OutputError OutputSums::Report(const std::string& name) const {
  OutputError report{.name = name,
                     .elements = elements,
                     .largest = error.largest,
                     .relative_largest = error.RelativeLargest(),
                     .relative_rms = error.Relative(),
                     .different = different};
  if (rows > 0) report.top1 = static_cast<double>(same_rows) / static_cast<double>(rows);
  return report;
}

/// A program at one level.
struct Level {
  LevelReport report;
  std::optional<Executable> executable;
  double seconds = INFINITY;  ///< of a run, the least
};

class Reporter {
 public:
  Reporter(const Program& program, std::span<const NamedValues> inputs,
           PrecisionReportOptions options)
      : program_(program), inputs_(inputs), options_(std::move(options)) {
    LATHE_CHECK(!inputs.empty(), "there are no inputs");
    CompileOptions& compile = options_.compile;
    if (!compile.engine) {
      compile.engine = std::make_shared<CompileEngine>(compile.cache, compile.cache_limit);
    }
  }

  PrecisionReport Run() {
    RunExact();
    for (size_t i = 0; i < PrecisionNames().size(); ++i) AddLevel(static_cast<Precision>(i));
    Measure();
    FindWorst();
    for (Level& level : levels_) {
      level.report.milliseconds = level.seconds * 1e3;
      level.report.speedup = levels_[0].seconds / level.seconds;
      report_.levels.push_back(std::move(level.report));
      report_.levels.back().keeps_promise = KeepsPromise(report_.levels.back());
    }
    return std::move(report_);
  }

 private:
  void Begin(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  CompileOptions At(Precision level) const {
    CompileOptions compile = options_.compile;
    compile.precision = level;
    return compile;
  }

  // Outputs for each set of inputs; each run begins with the parameters that the first one had.
  static std::vector<NamedValues> RunAll(const Executable& executable,
                                         std::span<const NamedValues> inputs) {
    NamedValues before;
    for (const std::string& name : executable.MutableParameters()) {
      before.emplace_back(name, executable.GetParameter(name));
    }
    std::vector<NamedValues> all;
    for (const NamedValues& values : inputs) {
      all.push_back(executable.Run(values));
      for (const auto& [name, value] : before) executable.SetParameter(name, value.tensor());
    }
    return all;
  }

  void RunExact() {
    Begin("f64");
    WideProgram wide = Widened(program_);
    report_.kept = std::move(wide.kept);
    exact_ = RunAll(Executable(wide.program, At(Precision::kStrict)), inputs_);
  }

  void AddLevel(Precision precision) {
    Begin(std::string(Name(precision)));
    Level& level = levels_.emplace_back();
    level.report.level = precision;
    level.executable.emplace(program_, At(precision));
    const std::vector<NamedValues> got = RunAll(*level.executable, inputs_);
    if (precision == Precision::kStrict) strict_ = got;
    level.report.same_as_strict = got == strict_;
    for (size_t k = 0; k < exact_[0].size(); ++k) {
      if (!exact_[0][k].second.is_tensor()) continue;
      OutputSums sums;
      for (size_t i = 0; i < got.size(); ++i) {
        sums.Add(exact_[i][k].second.tensor(), got[i][k].second.tensor());
      }
      level.report.outputs.push_back(sums.Report(exact_[0][k].first));
    }
  }

  // Levels take turns, so that what else the machine does meets all of them.
  void Measure() {
    Begin("measuring");
    const double start = SecondsNow();
    for (int round = 0; round < kMostRounds; ++round) {
      if (round >= kLeastRounds && SecondsNow() - start > options_.seconds) return;
      for (Level& level : levels_) {
        const double before = SecondsNow();
        (void)level.executable->Run(inputs_[0]);
        level.seconds = std::min(level.seconds, SecondsNow() - before);
      }
    }
  }

  void FindWorst() {
    KernelErrors errors(At(Precision::kStrict));
    for (Level& level : levels_) {
      if (level.report.level != Precision::kStrict && level.report.same_as_strict) {
        level.report.worst = levels_[0].report.worst;
        continue;
      }
      Begin(StrCat("kernels of ", Name(level.report.level)));
      level.executable.reset();  // its weights need not be there twice
      level.report.worst = errors.Worst(program_, At(level.report.level), inputs_[0]);
    }
    report_.kernels_not_compared = errors.not_compared();
  }

  // Less than a rounding of the outputs is no error that says anything of a level.
  bool KeepsPromise(const LevelReport& report) const {
    constexpr double kRounding = 0x1p-24;
    const std::vector<OutputError>& strict = report_.levels[0].outputs;
    for (size_t k = 0; k < strict.size(); ++k) {
      const double usual = std::max(strict[k].relative_rms, kRounding);
      const double most = std::max(Promised(report.level), 2 * usual);
      if (report.outputs[k].relative_rms > most) return false;
    }
    return true;
  }

  const Program& program_;
  std::span<const NamedValues> inputs_;
  PrecisionReportOptions options_;
  PrecisionReport report_;
  std::vector<NamedValues> exact_, strict_;
  std::vector<Level> levels_;
};

}  // namespace

PrecisionReport ReportPrecision(const Program& program, std::span<const NamedValues> inputs,
                                const PrecisionReportOptions& options) {
  return Reporter(program, inputs, options).Run();
}

}  // namespace lathe
