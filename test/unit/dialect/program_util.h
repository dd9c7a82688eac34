#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/support/error.h"

namespace lathe::testing {

/// Programs as text, read, run and compared.
class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() { LoadAllDialects(context_); }

  /// The statements between `program {` and `}`.
  Program Parse(std::string_view body) {
    return ParseProgram(context_, StrCat("program {\n", body, "\n}"));
  }

  NamedValues Run(std::string_view body, const NamedValues& inputs = {},
                  InterpreterOptions options = {}) {
    Program program = Parse(body);
    return Interpreter(program, std::move(options)).Run(inputs);
  }

  /// The error that `fn` throws; one without id if it throws none.
  template <class F>
  Error ErrorOf(F&& fn) {
    try {
      fn();
    } catch (Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "", "no error");
  }

  /// "ID: MESSAGE" of the error that `fn` throws; "no error" if it throws none.
  template <class F>
  static std::string OutcomeOf(F&& fn) {
    try {
      fn();
    } catch (const Error& error) {
      return StrCat(error.id(), ": ", error.message());
    }
    return "no error";
  }

  IrContext context_;
};

template <class T>
RtValue Vec(const std::vector<T>& values) {
  return Tensor::Of<T>({static_cast<int64_t>(values.size())}, values);
}

template <class T>
std::vector<T> ValuesOf(const RtValue& value) {
  const Elements<T> elements(value.tensor());
  return std::vector<T>(elements.begin(), elements.end());
}

}  // namespace lathe::testing
