#include "src/lower/attention_block.h"
#include "src/lower/strategies/list.h"

// Attention as one kernel: per head some queries at a time, whose scores are never in memory as a
// whole. Single queries, as they come when text is generated, read keys and values once.
namespace lathe::lower {
namespace {

using nn::AttentionOp;
using Form = AttentionForm;

class Attention {
 public:
  Attention(Lowering& lowering, const Form& form)
      : function_(lowering.function),
        form_(form),
        lb_(lowering.body),
        im_(lb_),
        body_(*lowering.body),
        mask_(lb_, im_, form, body_),
        block_(lb_, im_, lowering.machine, form, mask_, lowering.knobs),
        lanes_(lowering.machine.lanes(ElementType::kF32)) {}

  void Write();

 private:
  using Body = std::function<void(const Dim& batch, const Dim& head, const Dim& block)>;
  void ForHeads(const Dim& heads, const Dim& blocks, const Body& body);
  std::vector<Value> At(const Form::Heads& heads, const Dim& batch, const Dim& head, const Dim& row,
                        const Dim& feature);
  Value MemoryOf(const Form::Heads& heads) { return body_.argument(heads.value.index()); }
  void Join(Value present, const Form::Heads& before, const Form::Heads& now);
  void Copy(Value from, const std::function<std::vector<Value>(Dim)>& source, Value to,
            const std::function<std::vector<Value>(Dim)>& target, int64_t features);
  AttentionBlock::Access AccessOf(const Dim& batch, const Dim& head);
  void WriteHead(const Dim& batch, const Dim& head, const std::function<void()>& body);

  const Block& function_;
  const Form& form_;
  LoopBuilder lb_;
  IndexMath im_;
  const Block& body_;
  AttentionMask mask_;
  AttentionBlock block_;
  int64_t lanes_;
  std::vector<Value> memory_;  // of the operation's results
  Form::Heads y_, keys_, values_;
};

// One loop over all, which threads share.
void Attention::ForHeads(const Dim& heads, const Dim& blocks, const Body& body) {
  const Dim batch = im_.Extent(form_.q.batch), per_batch = im_.Name(im_.Extent(heads) * blocks);
  im_.For(batch * per_batch, true, [&](const Dim& i) {
    const Dim b = im_.Name(FloorDiv(i, per_batch)), rest = im_.Name(Mod(i, per_batch));
    body(b, im_.Name(FloorDiv(rest, blocks)), im_.Name(Mod(rest, blocks)));
  });
}

std::vector<Value> Attention::At(const Form::Heads& heads, const Dim& batch, const Dim& head,
                                 const Dim& row, const Dim& feature) {
  if (heads.merged) return im_.At({batch, row, head * heads.features + feature});
  return im_.At({batch, head, row, feature});
}

// Keys or values of before and of now, one after the other.
void Attention::Join(Value present, const Form::Heads& before, const Form::Heads& now) {
  const Dim past = im_.Extent(before.rows), rows = im_.Extent(now.rows);
  const int64_t features = now.features.value();
  ForHeads(now.heads, 1, [&](const Dim& b, const Dim& h, const Dim&) {
    const auto copy = [&](const Form::Heads& from, const Dim& count, const Dim& first) {
      im_.For(count, false, [&](const Dim& row) {
        for (int64_t f = 0; f < features; f += lanes_) {
          const Value live = features - f < lanes_ ? lb_.Int(features - f) : Value();
          const Value v = lb_.Load(MemoryOf(from), At(from, b, h, row, f), lanes_, live);
          lb_.Store(present, v, im_.At({b, h, first + row, Dim(f)}), live);
        }
      });
    };
    copy(before, past, 0);
    copy(now, rows, past);
  });
}

AttentionBlock::Access Attention::AccessOf(const Dim& batch, const Dim& head) {
  const Dim shared = im_.Name(FloorDiv(head, im_.Extent(form_.group())));
  AttentionBlock::Access access;
  access.queries = MemoryOf(form_.q);
  access.keys = form_.cached() ? memory_[AttentionOp::kPresentKey] : MemoryOf(form_.k);
  access.values = form_.cached() ? memory_[AttentionOp::kPresentValue] : MemoryOf(form_.v);
  access.results = memory_[AttentionOp::kY];
  const auto place = [=, this](const Form::Heads& heads, const Dim& h) {
    return [=, this, &heads](const Dim& row, const Dim& feature) {
      return At(heads, batch, h, row, feature);
    };
  };
  access.query = place(form_.q, head);
  access.key = place(keys_, shared);
  access.value = place(values_, shared);
  access.result = place(y_, head);
  return access;
}

void Attention::Write() {
  memory_.resize(AttentionOp::kQkMatmulOutput);
  std::vector<Value> given;
  for (const size_t result : form_.results) {
    memory_[result] = lb_.Alloc(form_.op->result(result).type().cast<AnyTensorType>());
    given.push_back(memory_[result]);
  }
  keys_ = form_.k;
  values_ = form_.v;
  y_ = {{}, {}, form_.q.heads, {}, form_.v.features, form_.q.merged};
  const Form::Heads none{{}, {}, {}, 0, {}, false};
  if (form_.IsResult(AttentionOp::kPresentKey)) {
    Join(memory_[AttentionOp::kPresentKey], form_.past_key.value_or(none), form_.k);
  }
  if (form_.IsResult(AttentionOp::kPresentValue)) {
    Join(memory_[AttentionOp::kPresentValue], form_.past_value.value_or(none), form_.v);
  }
  if (form_.cached()) keys_.merged = values_.merged = false;
  Dim keys = im_.Extent(form_.k.rows);
  if (form_.cached()) keys = im_.Name(keys + im_.Extent(form_.past_key->rows));
  const Dim queries = im_.Extent(form_.q.rows), size = block_.queries();
  const Dim full = im_.Name(FloorDiv(queries, size)), rest = im_.Name(Mod(queries, size));
  ForHeads(form_.q.heads, full, [&](const Dim& b, const Dim& h, const Dim& i) {
    mask_.SetHead(b, h, keys);
    block_.WriteBlock(AccessOf(b, h), im_.Name(i * size), size);
  });
  const Dim first = im_.Name(full * size), many = im_.Name(Min(FloorDiv(rest, block_.few()), 1));
  ForHeads(form_.q.heads, Min(rest, 1), [&](const Dim& b, const Dim& h, const Dim&) {
    mask_.SetHead(b, h, keys);
    im_.For(many, false, [&](const Dim&) { block_.WriteBlock(AccessOf(b, h), first, rest); });
    im_.For(rest * (1 - many), false,
            [&](const Dim& row) { block_.WriteRow(AccessOf(b, h), im_.Name(first + row)); });
  });
  lb_.Return(given);
}

}  // namespace

bool LowerAttention(Lowering& l) {
  Form form;
  l.why = form.Read(l.function);
  if (!l.why.empty()) return false;
  Attention(l, form).Write();
  return true;
}

}  // namespace lathe::lower
