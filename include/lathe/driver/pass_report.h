#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lathe/pass/pass_manager.h"

namespace lathe {

/// Records the program before and after each pass that changed it, for a person to look at: one
/// HTML file without references to anything outside it. Add it last, so that the times it shows are
/// those of the passes alone. Each program is kept once, as compact data.
class PassReport : public PassInstrumentation {
 public:
  explicit PassReport(std::string title);
  ~PassReport() override;
  void BeforePass(const Pass& pass, Program& program) override;
  void AfterPass(const Pass& pass, Program& program) override;
  void AfterFailure(const Pass& pass, Program& program, const Error& error) override;

  /// What the passes of the run noticed, to be shown with each.
  void SetRemarks(const std::vector<Remark>& remarks);

  std::string ToHtml() const;
  /// Of what Write makes.
  static std::string PathIn(const std::string& folder);
  /// `folder`/report.html; makes the folder.
  void Write(const std::string& folder) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe
