#pragma once

#include <vector>

#include "src/frontend/onnx/contrib.h"

/// What the rules for operators of ai.onnx.ml share.
namespace lathe::onnx {

inline constexpr auto kF32 = static_cast<int64_t>(ElementType::kF32);

inline int64_t Count(const auto& list) { return static_cast<int64_t>(list.size()); }

// Attributes that are lists; empty where they are absent.
std::vector<double> FloatsOf(const UpgradeContext& c, Text name);
std::vector<int64_t> IntsOf(const UpgradeContext& c, Text name);
std::vector<Text> StringsOf(const UpgradeContext& c, Text name);

Tensor FloatTensor(Shape shape, const std::vector<double>& values,
                   ElementType type = ElementType::kF32);
/// Input `input` as f32.
Text AsFloat(UpgradeContext& c, size_t input);
/// Input `input` as a matrix of f32: a vector is one row. Of other ranks it is refused.
Text FloatRows(UpgradeContext& c, size_t input);
/// `scores` after the attribute post_transform.
Text Transformed(UpgradeContext& c, Text scores);
/// The names of classes: of integers (attribute `ints_name`), or of strings.
Tensor ClassLabels(UpgradeContext& c, Text ints_name);
/// Output 0 is the label of the largest of each row of `scores`, of several the first.
void GiveBest(UpgradeContext& c, Nodes& make, const Tensor& labels, Text scores);

// Rules (contrib_svm.cc).
void SvmClassifier(UpgradeContext& c);
void SvmRegressor(UpgradeContext& c);

}  // namespace lathe::onnx
