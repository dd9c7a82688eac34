#include "lathe/dialect/nn/io.h"

#include "lathe/support/text.h"

namespace lathe::nn {

void FeedOp::Eval(EvalContext& c) {
  const std::string_view name = FeedOp(c.op()).name();
  const RtValue* value = c.Feed(name);
  if (value == nullptr) c.Fail("run/input-missing", StrCat("no value is given for '", name, "'"));
  c.SetOutputValue(kValue, *value);
}

void FetchOp::Eval(EvalContext& c) {
  if (c.num_inputs() == 0) c.Fail("run/operand", "there is nothing to fetch");
  c.Fetch(FetchOp(c.op()).name(), c.input_value(kValue));
}

}  // namespace lathe::nn
