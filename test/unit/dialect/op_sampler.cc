#include "test/unit/dialect/op_sampler.h"

#include <algorithm>
#include <fstream>

#include "lathe/ir/traits.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"

namespace lathe::testing {

using nlohmann::json;

namespace {

const json kDefaultShape = {2, 3};

// Elements that a hint allows for a type variable, else those of its declaration.
std::vector<ElementType> ElementsOf(const TypeSetDef& set, const json& hint) {
  if (hint.contains("types") && hint["types"].contains(set.name)) {
    std::vector<ElementType> elements;
    for (const auto& name : hint["types"][set.name]) {
      elements.push_back(ParseElementType(name.get<std::string>()).value());
    }
    return elements;
  }
  return {set.elements.begin(), set.elements.end()};
}

// One combination per element type of each variable, the others at their first that is most usual.
std::vector<std::vector<ElementType>> Combinations(const OpDef& def, const json& hint) {
  std::vector<std::vector<ElementType>> sets;
  std::vector<ElementType> usual;
  for (const TypeSetDef& set : def.type_sets) {
    sets.push_back(ElementsOf(set, hint));
    const auto& elements = sets.back();
    const bool has_f32 =
        std::find(elements.begin(), elements.end(), ElementType::kF32) != elements.end();
    usual.push_back(has_f32 ? ElementType::kF32 : elements.front());
  }
  std::vector<std::vector<ElementType>> result = {usual};
  for (size_t v = 0; v < sets.size(); ++v) {
    for (const ElementType element : sets[v]) {
      std::vector<ElementType> other = usual;
      other[v] = element;
      if (other != usual) result.push_back(std::move(other));
    }
  }
  return result;
}

bool AllPlainTensors(const OpDef& def) {
  return std::all_of(def.operands.begin(), def.operands.end(), [](const ValueDef& v) {
    return v.type.kind == TypeRule::Kind::kVariable || v.type.kind == TypeRule::Kind::kElement;
  });
}

// Shapes for the operands in turn.
json ShapesCase(const OpDef& def, const std::vector<json>& shapes) {
  json inputs = json::object();
  size_t next = 0;
  for (const ValueDef& v : def.operands) {
    json shape = shapes[next++ % shapes.size()];
    inputs[v.name] = v.variadic ? json::array({shape, shapes[next % shapes.size()]}) : shape;
  }
  return {{"inputs", inputs}};
}

template <class T>
Attribute MakeArray(IrContext& context, const json& value) {
  const auto values = value.get<std::vector<T>>();
  return ArrayAttribute::Get(context, std::span<const T>(values));
}

std::string PlainName(std::string_view name) {
  return std::string(name.ends_with('_') ? name.substr(0, name.size() - 1) : name);
}

}  // namespace

json ReadSampleHints() {
  std::ifstream file(LATHE_BUILD_DIR "/gen/op_samples.json");
  return json::parse(file);
}

json OpSampler::Hint(OpInfo info) const {
  const bool twin = info.HasTrait<Inplace>();
  const std::string name = twin ? PlainName(info.name()) : std::string(info.name());
  return hints_.contains(name) ? hints_[name] : json();
}

std::string OpSampler::ReasonAgainst(OpInfo info) const {
  const json hint = Hint(info);
  return hint.is_string() ? hint.get<std::string>() : std::string();
}

std::vector<json> OpSampler::Cases(OpInfo info) const {
  const json hint = Hint(info);
  if (hint.is_array()) return {hint.begin(), hint.end()};
  if (hint.is_object()) return {hint};
  const OpDef& def = *info.def();
  std::vector<json> cases = {ShapesCase(def, {kDefaultShape})};
  const bool optional = std::any_of(def.operands.begin(), def.operands.end(),
                                    [](const ValueDef& v) { return v.optional; });
  if (optional) cases.push_back({{"inputs", json::object()}});
  if (!info.HasTrait<Elementwise>() || !AllPlainTensors(def)) return cases;
  cases.push_back(ShapesCase(def, {json::array()}));
  cases.push_back(ShapesCase(def, {{0, 3}}));
  if (def.operands.size() > 1 && !info.HasTrait<SameOperandsAndResultShape>()) {
    const json first = info.HasTrait<Inplace>() ? json{2, 4, 3} : json{2, 1, 3};
    cases.push_back(ShapesCase(def, {first, {4, 1}}));
  }
  return cases;
}

std::vector<OpSample> OpSampler::Samples(OpInfo info) {
  std::vector<OpSample> samples;
  size_t number = 0;
  for (const json& hint : Cases(info)) {
    for (const std::vector<ElementType>& elements : Combinations(*info.def(), hint)) {
      samples.push_back(Make(info, hint, elements));
      std::string& label = samples.back().label;
      label = StrCat(info.name(), " case ", number);
      for (size_t v = 0; v < elements.size(); ++v) {
        label += StrCat(" ", info.def()->type_sets[v].name, "=", Name(elements[v]));
      }
      if (hint.contains("types_vary") && !hint["types_vary"].get<bool>()) break;
    }
    ++number;
  }
  return samples;
}

OpSample OpSampler::Make(OpInfo info, const json& hint, const std::vector<ElementType>& elements) {
  OpSample sample{.info = info, .inputs = {}, .attributes = {}, .num_results = 0, .label = ""};
  sample.num_results = hint.value("results", info.def()->results.size());
  for (const ValueDef& def : info.def()->operands) AddOperand(sample, def, hint, elements);
  while (!sample.inputs.empty() && sample.inputs.back().is_none()) sample.inputs.pop_back();
  AddAttributes(sample, hint);
  return sample;
}

void OpSampler::AddOperand(OpSample& sample, const ValueDef& def, const json& hint,
                           const std::vector<ElementType>& elements) {
  const json inputs = hint.value("inputs", json::object());
  const bool given = inputs.contains(def.name);
  if (!def.variadic) {
    const json spec = given ? inputs[def.name] : def.optional ? json() : kDefaultShape;
    sample.inputs.push_back(spec.is_null() ? RtValue() : MakeValue(def.type, spec, elements));
    return;
  }
  const json list = given ? inputs[def.name] : json::array({kDefaultShape, kDefaultShape});
  for (const json& spec : list) sample.inputs.push_back(MakeValue(def.type, spec, elements));
}

RtValue OpSampler::MakeValue(const TypeRule& rule, const json& spec,
                             const std::vector<ElementType>& elements) {
  const TypeRule& inner = rule.inner != nullptr ? *rule.inner : rule;
  if (spec.is_object() && spec.contains("list")) {
    RtValue::List list;
    for (const json& entry : spec["list"]) list.push_back(MakeValue(inner, entry, elements));
    return RtValue::OfList(std::move(list));
  }
  if (spec.is_object() && spec.contains("optional")) {
    if (spec["optional"].is_null()) return RtValue::AbsentOptional();
    return MakeValue(inner, spec["optional"], elements);
  }
  if (rule.inner != nullptr) return MakeValue(inner, spec, elements);
  ElementType element = ElementType::kF32;
  if (rule.kind == TypeRule::Kind::kVariable) element = elements[rule.index];
  if (rule.kind == TypeRule::Kind::kElement) element = rule.element;
  return MakeTensor(element, spec);
}

Tensor OpSampler::MakeTensor(ElementType element, const json& spec) {
  if (spec.is_array()) return RandomTensor(element, spec.get<Shape>(), seed_, stream_++);
  if (spec.contains("element")) {
    element = ParseElementType(spec["element"].get<std::string>()).value();
  }
  if (spec.contains("value"))
    return MakeTensor(element, {{"shape", json::array()}, {"values", {spec["value"]}}});
  Shape shape;
  if (spec.contains("shape")) {
    shape = spec["shape"].get<Shape>();
  } else {
    shape = {static_cast<int64_t>(spec.at("values").size())};
  }
  if (spec.contains("values")) {
    if (element == ElementType::kString) {
      return Tensor::Of<std::string>(shape, spec["values"].get<std::vector<std::string>>());
    }
    return Cast(Tensor::Of<double>(shape, spec["values"].get<std::vector<double>>()), element);
  }
  if (!spec.contains("low")) return RandomTensor(element, shape, seed_, stream_++);
  RandomStream random(seed_, stream_++);
  std::vector<double> values(static_cast<size_t>(NumElements(shape)));
  for (double& v : values)
    v = random.Uniform(spec["low"].get<double>(), spec["high"].get<double>());
  return Cast(Tensor::Of<double>(shape, values), element);
}

Attribute OpSampler::MakeAttribute(AttrKind kind, const json& value) {
  switch (kind) {
    case AttrKind::kBool:
      return BoolAttribute::Get(context_, value.get<bool>());
    case AttrKind::kInt:
      return IntAttribute::Get(context_, value.get<int64_t>());
    case AttrKind::kFloat:
      return FloatAttribute::Get(context_, value.get<double>());
    case AttrKind::kStr:
      return StrAttribute::Get(context_, value.get<std::string>());
    case AttrKind::kInts:
      return MakeArray<int64_t>(context_, value);
    case AttrKind::kFloats:
      return MakeArray<double>(context_, value);
    case AttrKind::kStrs:
      return MakeArray<std::string>(context_, value);
    case AttrKind::kType:
      return TypeAttribute::Get(
          ElemType::Get(context_, ParseElementType(value.get<std::string>()).value()));
    case AttrKind::kTensor:
      return TensorAttribute::Get(context_, MakeTensor(ElementType::kF32, value));
    default:
      LATHE_CHECK(false, "no hints for attributes of this kind");
  }
  return {};
}

void OpSampler::AddAttributes(OpSample& sample, const json& hint) {
  const json given = hint.value("attributes", json::object());
  for (const AttrDef& def : sample.info.def()->attributes) {
    json value = given.contains(def.name) ? given[def.name] : json();
    const bool required = !def.optional && def.default_text == nullptr;
    if (value.is_null() && required && def.kind == AttrKind::kInt) value = def.min;
    if (value.is_null() && required && def.kind == AttrKind::kType) value = "f32";
    if (value.is_null() && required && !def.one_of.empty()) value = def.one_of[0];
    if (value.is_null()) continue;
    sample.attributes.emplace_back(def.name, MakeAttribute(def.kind, value));
  }
}

}  // namespace lathe::testing
