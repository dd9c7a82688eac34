#include "lathe/dialect/all.h"

#include "lathe/dialect/builtin.h"
#include "lathe/dialect/builtin/builtin_ops.h"
#include "lathe/dialect/cf.h"
#include "lathe/dialect/cf/cf_ops.h"
#include "lathe/dialect/dist.h"
#include "lathe/dialect/dist/dist_ops.h"
#include "lathe/dialect/loop.h"
#include "lathe/dialect/loop/loop_ops.h"
#include "lathe/dialect/nn.h"
#include "lathe/dialect/nn/nn_ops.h"

namespace lathe {

BuiltinDialect::BuiltinDialect(IrContext& context) : Dialect(context, kName) {
  builtin::RegisterBuiltinOps(*this);
}

CfDialect::CfDialect(IrContext& context) : Dialect(context, kName) { cf::RegisterCfOps(*this); }

DistDialect::DistDialect(IrContext& context) : Dialect(context, kName) {
  dist::RegisterDistOps(*this);
}

LoopDialect::LoopDialect(IrContext& context) : Dialect(context, kName) {
  loop::RegisterLoopOps(*this);
}

NnDialect::NnDialect(IrContext& context) : Dialect(context, kName) { nn::RegisterNnOps(*this); }

void LoadAllDialects(IrContext& context) {
  context.LoadDialect<BuiltinDialect>();
  context.LoadDialect<CfDialect>();
  context.LoadDialect<DistDialect>();
  context.LoadDialect<NnDialect>();
  context.LoadDialect<LoopDialect>();
}

}  // namespace lathe
