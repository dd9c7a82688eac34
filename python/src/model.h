#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "lathe/ir/context.h"
#include "lathe/ir/program.h"
#include "lathe/support/error.h"

namespace lathe::python {

/// A program and the context that owns its types. Any number of threads may read it; the text of
/// operations and their places are valid for one `version`.
struct ProgramHolder {
  ProgramHolder();
  ProgramHolder(std::shared_ptr<IrContext> c, Program p)
      : context(std::move(c)), program(std::move(p)) {}

  std::shared_ptr<IrContext> context;
  Program program;
  uint64_t version = 0;             ///< counts changes
  mutable std::shared_mutex mutex;  ///< of the two above; held for moments where it is exclusive
};

/// A program as a file gives it. The program may be changed through `holder`.
struct ModelHandle {
  std::shared_ptr<ProgramHolder> holder;
  std::string name;                  ///< its path, or what it came from
  std::vector<Error> warnings = {};  ///< of the import
};

void BindModel(nanobind::module_& m);
void BindOnnxInterface(nanobind::module_& m);
void BindProgram(nanobind::module_& m);
void BindExecutable(nanobind::module_& m);

}  // namespace lathe::python
