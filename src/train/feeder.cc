#include <algorithm>
#include <array>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "src/driver/program_ports.h"
#include "src/train/batches.h"

namespace lathe::train {
namespace {

std::string TypeOf(const Column& column, std::string_view rows) {
  std::string text = StrCat(Name(column.element), "[", rows);
  for (const int64_t extent : column.sample) text += StrCat(",", extent);
  return text + "]";
}

bool Fits(const Shape& sample, std::span<const Dim> dims) {
  return std::ranges::equal(sample, dims, [](int64_t extent, const Dim& dim) {
    return !dim.is_constant() || dim.value() == extent;
  });
}

// The sample's shape as an input of these dims has it: as it is, or with axes of extent 1 added and
// left out, the others in order. Nothing if it cannot be.
std::optional<Shape> FitSample(const Shape& sample, std::span<const Dim> dims) {
  if (Fits(sample, dims)) return sample;
  Shape rest, fitted;
  std::ranges::copy_if(sample, std::back_inserter(rest),
                       [](int64_t extent) { return extent != 1; });
  size_t next = 0;
  for (const Dim& dim : dims) {
    const bool is_added = dim.IsConstant(1) || next == rest.size();
    fitted.push_back(is_added ? 1 : rest[next++]);
  }
  return next == rest.size() && Fits(fitted, dims) ? std::optional(fitted) : std::nullopt;
}

// Where the channels of pictures [N, C, H, W], [N, H, W, C] or of one channel are: the channel of
// element i of a sample is (i / inner) % count.
struct Channels {
  int64_t inner = 1, count = 1;
};
Channels ChannelsOf(const Shape& sample) {
  if (sample.size() == 3 && sample[0] == 3) return {sample[1] * sample[2], 3};
  if (sample.size() == 3 && sample[2] == 3) return {1, 3};
  return {};
}

Tensor FromPixels(const Tensor& array, const ImageOptions& options, ElementType element) {
  if (options.raw) return Cast(array, element);
  const Channels channels = ChannelsOf(Shape(array.shape().begin() + 1, array.shape().end()));
  std::array<std::array<float, 256>, 3> table;
  for (size_t c = 0; c < table.size(); ++c) {
    for (size_t v = 0; v < table[c].size(); ++v) {
      table[c][v] = static_cast<float>((static_cast<double>(v) / 255 - options.mean[c]) /
                                       options.deviation[c]);
    }
  }
  Tensor out(ElementType::kF32, array.shape());
  const auto pixels = array.data<uint8_t>();
  const auto values = out.mutable_data<float>();
  for (size_t i = 0; i < pixels.size(); ++i) {
    const int64_t c = static_cast<int64_t>(i) / channels.inner % channels.count;
    values[i] = table[static_cast<size_t>(c)][pixels[i]];
  }
  return element == ElementType::kF32 ? out : Cast(out, element);
}

}  // namespace

Feeder::Feeder(const DataSet& data, std::span<const Port> inputs, FeedOptions options)
    : data_(data), options_(std::move(options)), inputs_(inputs.begin(), inputs.end()) {
  for (const Port& port : inputs_) feeds_.push_back(MakeFeed(port, FindColumn(port)));
  CheckSymbols();
}

std::vector<runtime::BoundSymbol> Feeder::Sizes(int64_t samples) const {
  std::vector<runtime::BoundSymbol> sizes;
  for (const Feed& feed : feeds_) {
    const std::vector<Dim>& dims = feed.port.dims;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (!dims[i].is_symbol()) continue;
      sizes.push_back(
          {dims[i].symbol_name(), i == 0 ? samples : feed.sample[i - 1], feed.port.name});
    }
  }
  return sizes;
}

void Feeder::CheckSymbols() const {
  constexpr int64_t kBatch = -1;
  std::vector<runtime::BoundSymbol> sizes = Sizes(kBatch);
  std::erase_if(sizes, [](const runtime::BoundSymbol& size) { return size.value == kBatch; });
  for (size_t i = 1; i < sizes.size(); ++i) {
    const auto first = std::ranges::find(sizes, sizes[i].name, &runtime::BoundSymbol::name);
    if (first->value == sizes[i].value) continue;
    throw Error(ErrorCode::kShape, "train/array-shape",
                StrCat("inputs '", first->input, "' and '", sizes[i].input, "' share the size ",
                       sizes[i].name, ", which is ", first->value, " in the array of the one and ",
                       sizes[i].value, " in that of the other"))
        .At(data_.Describe());
  }
}

// By name; or the one array that is left for the one input that is left.
size_t Feeder::FindColumn(const Port& port) const {
  const std::vector<Column>& columns = data_.columns();
  const bool is_target = port.name == options_.target;
  const std::string wanted = is_target && !options_.labels.empty() ? options_.labels : port.name;
  const auto index = [&](std::string_view name) {
    const auto at = std::ranges::find(columns, name, &Column::name);
    return static_cast<size_t>(at - columns.begin());
  };
  if (const size_t at = index(wanted); at < columns.size()) return at;
  if (is_target && options_.labels.empty() && index(kLabels) < columns.size()) {
    return index(kLabels);
  }
  const auto has_input = [&](const Column& column) {
    return std::ranges::any_of(inputs_, [&](const Port& p) { return p.name == column.name; });
  };
  const bool for_target = is_target || wanted == options_.labels;
  std::vector<size_t> left;
  std::vector<std::string> names;
  for (size_t i = 0; i < columns.size(); ++i) {
    names.push_back(columns[i].name);
    const bool labels = columns[i].name == options_.labels ||
                        (options_.labels.empty() && columns[i].name == kLabels);
    if (!has_input(columns[i]) && !labels) left.push_back(i);
  }
  const auto unnamed = std::ranges::count_if(inputs_, [&](const Port& p) {
    return p.name != options_.target && index(p.name) == columns.size();
  });
  if (!for_target && left.size() == 1 && unnamed == 1) return left[0];
  Error error(ErrorCode::kNotFound, "train/array",
              StrCat("there is no array '", wanted, "' for ",
                     is_target ? "the targets of the loss" : "this input of the model"));
  std::string list;
  for (const std::string& name : names) list += StrCat(list.empty() ? "'" : ", '", name, "'");
  error.At(data_.Describe()).Note(StrCat("its arrays: ", list));
  if (const std::string near = DidYouMean(wanted, names); !near.empty()) error.Hint(near);
  if (is_target) error.Hint("--labels NAME says which array has the labels or targets");
  throw error;
}

Feeder::Feed Feeder::MakeFeed(const Port& port, size_t column) const {
  const Column& from = data_.columns()[column];
  const auto fail = [&](ErrorCode code, const char* id, std::string_view why) {
    return Error(code, id,
                 StrCat("array '", from.name, "' is ", TypeOf(from, StrCat(data_.size())),
                        ", input '", port.name, "' is ", TypeOf(port), why))
        .At(data_.Describe());
  };
  const bool is_number =
      IsFloat(from.element) || IsInteger(from.element) || from.element == ElementType::kBool;
  const bool loses = IsFloat(from.element) && !IsFloat(port.element);
  if (!is_number || loses || port.element == ElementType::kUndefined) {
    throw fail(ErrorCode::kType, "train/array-type",
               loses && port.name == options_.target ? ": classes are integers" : "");
  }
  const bool is_scalar = port.dims.empty();
  const auto sample =
      is_scalar ? std::nullopt : FitSample(from.sample, std::span(port.dims).subspan(1));
  if (!sample) throw fail(ErrorCode::kShape, "train/array-shape", "");
  return {port, column, *sample};
}

Tensor Feeder::Convert(const Feed& feed, Tensor array, std::span<const int64_t> rows) const {
  const bool is_pixels = array.element_type() == ElementType::kU8 && IsFloat(feed.port.element) &&
                         feed.port.name != options_.target;
  if (is_pixels) {
    array = FromPixels(array, options_.image, feed.port.element);
  } else if (array.element_type() != feed.port.element) {
    array = Cast(array, feed.port.element);
  }
  if (feed.port.name == options_.target && options_.is_classes) CheckLabels(array, rows);
  Shape shape = feed.sample;
  shape.insert(shape.begin(), static_cast<int64_t>(rows.size()));
  return array.Reshaped(shape);
}

void Feeder::CheckLabels(const Tensor& labels, std::span<const int64_t> rows) const {
  const std::vector<int64_t> values = ToInt64s(labels);
  const size_t each = rows.empty() ? 1 : values.size() / rows.size();
  for (size_t i = 0; i < values.size(); ++i) {
    const bool too_large = options_.num_classes >= 0 && values[i] >= options_.num_classes;
    if (values[i] >= 0 && !too_large) continue;
    const std::string classes = options_.num_classes < 0
                                    ? "a class"
                                    : StrCat("one of the ", options_.num_classes, " classes, 0 to ",
                                             options_.num_classes - 1);
    throw Error(ErrorCode::kInvalidArgument, "train/label",
                StrCat("the label ", values[i], " of sample ", rows[i / each], " is not ", classes))
        .At(data_.Describe());
  }
}

NamedValues Feeder::Read(std::span<const int64_t> rows) const {
  const NamedTensors columns = data_.Read(rows);
  NamedValues values;
  for (const Feed& feed : feeds_) {
    values.emplace_back(feed.port.name, Convert(feed, columns[feed.column].second, rows));
  }
  return values;
}

}  // namespace lathe::train
