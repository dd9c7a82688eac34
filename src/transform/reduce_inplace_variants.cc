#include "src/transform/functionalize.h"

namespace lathe {

namespace {

class ReduceInplaceVariantsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Functionalize(graph, this, FunctionalizeScope::kWritten);
  }
};

REGISTER_PASS(reduce_inplace_variants, ReduceInplaceVariantsPass)
    .Doc("turns b = relu_(a) into b = relu(a); later uses of a and of its views read b")
    .Details("Types stay as they are; tensors that nothing writes are left alone.");

}  // namespace

}  // namespace lathe
