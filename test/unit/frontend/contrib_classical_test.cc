#include <gtest/gtest.h>

#include <algorithm>

#include "test/unit/frontend/contrib_case.h"

/// Operators of ai.onnx.ml. What is expected was computed by onnxruntime 1.32.
namespace lathe::onnx {
namespace {

AttributeMsg Strings(Text name, std::vector<Text> values) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kStrings;
  a.strings = std::move(values);
  return a;
}

Tensor Features() { return Ramp({3, 4}, 0); }

std::vector<Case> FeatureCases() {
  const auto normalizer = [](const char* norm, std::vector<float> y) {
    return Case{"norm",       "Normalizer",        kClassical,
                {Features()}, {Str("norm", norm)}, {F32({3, 4}, std::move(y))}};
  };
  Tensor holes = Features();
  holes.mutable_data<float>()[1] = NAN;
  return {{"scaler",
           "Scaler",
           kClassical,
           {Features()},
           {Floats("offset", {0.5, -0.25, 0, 1}), Floats("scale", {2, 1, 4, 0.5})},
           {F32({3, 4},
                {-3.75F, 0.625F, -3, 0, -1.25F, -1, 2, -0.8125F, 1.25F, 0.25F, -4.5F, -0.1875F})}},
          normalizer("MAX",
                     {-1.375F, 0.375F, -0.75F, 1, -0.25F, -2.5F, 1, -1.25F, 1, 0, -1, 0.55555558F}),
          normalizer("L1", {-0.39285713F, 0.10714286F, -0.21428572F, 0.2857143F, -0.05F, -0.5F,
                            0.2F, -0.25F, 0.39130434F, 0, -0.39130434F, 0.2173913F}),
          normalizer("L2", {-0.72531855F, 0.19781414F, -0.39562827F, 0.52750438F, -0.08391813F,
                            -0.83918136F, 0.33567253F, -0.41959068F, 0.65814525F, 0, -0.65814525F,
                            0.3656362F}),
          {"imputer",
           "Imputer",
           kClassical,
           {holes},
           {Floats("imputed_value_floats", {1, 2, 3, 4}), Float("replaced_value_float", NAN)},
           {F32({3, 4}, {-1.375F, 2, -0.75F, 1, -0.125F, -1.25F, 0.5F, -0.625F, 1.125F, 0, -1.125F,
                         0.625F})}},
          {"imputer",
           "Imputer",
           kClassical,
           {Tensor::Of<int64_t>({2, 2}, {-1, 7, 0, -1})},
           {Ints("imputed_value_int64s", {5, 6}), Int("replaced_value_int64", -1)},
           {Tensor::Of<int64_t>({2, 2}, {5, 7, 0, 6})}}};
}

// Places of elements among the categories; a number is truncated, of equal categories the last
// counts.
std::vector<Case> OneHotCases() {
  const auto one_hot = [](Tensor x, AttributeMsg categories, int64_t zeros, Tensor y) {
    return Case{"one_hot",
                "OneHotEncoder",
                kClassical,
                {std::move(x)},
                {std::move(categories), Int("zeros", zeros)},
                {std::move(y)}};
  };
  const Tensor numbers = Tensor::Of<int64_t>({2, 2}, {1, 5, 7, 2});
  const Tensor words = Tensor::Of<std::string>({2, 1}, {"a", "z"});
  return {
      one_hot(numbers, Ints("cats_int64s", {1, 2, 5}), 1,
              F32({2, 2, 3}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0})),
      one_hot(F32({4}, {1.75F, 2, -1.5F, 9}), Ints("cats_int64s", {1, 2, -1}), 1,
              F32({4, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0})),
      one_hot(Integers({3, 1}), Ints("cats_int64s", {1, 3, 1}), 0, F32({2, 3}, {0, 1, 0, 0, 0, 1})),
      one_hot(words, Strings("cats_strings", {"b", "a"}), 1, F32({2, 1, 2}, {0, 1, 0, 0})),
  };
}

std::vector<Case> CategoryCases() {
  const Tensor words = Tensor::Of<std::string>({2, 2}, {"b", "z", "a", "b"});
  const AttributeMsg names = Strings("cats_strings", {"a", "b"}), ids = Ints("cats_int64s", {7, 9});
  return {
      {"words",
       "CategoryMapper",
       kClassical,
       {words},
       {names, ids},
       {Tensor::Of<int64_t>({2, 2}, {9, -1, 7, 9})}},
      {"words_otherwise",
       "CategoryMapper",
       kClassical,
       {words},
       {names, ids, Int("default_int64", 3)},
       {Tensor::Of<int64_t>({2, 2}, {9, 3, 7, 9})}},
      {"ids",
       "CategoryMapper",
       kClassical,
       {Integers({9, 8, 7})},
       {names, ids, Str("default_string", "none")},
       {Tensor::Of<std::string>({3}, {"b", "none", "a"})}},
      {"ids_unused",
       "CategoryMapper",
       kClassical,
       {Integers({8})},
       {names, ids},
       {Tensor::Of<std::string>({1}, {"_Unused"})}},
  };
}

std::vector<Case> LinearCases() {
  const std::vector<double> weights = {1, 2, -1, 0.5, 0, 1, 1, -2, -1, 0, 0.5, 0.5};
  const auto classifier = [&](const char* post, std::vector<float> y) {
    return Case{"classes",
                "LinearClassifier",
                kClassical,
                {Features()},
                {Floats("coefficients", weights), Floats("intercepts", {0.25, -0.5, 0}),
                 Ints("classlabels_ints", {7, 3, 5}), Str("post_transform", post)},
                {Integers({5, 5, 7}), F32({3, 3}, std::move(y))}};
  };
  return {
      {"regressor",
       "LinearRegressor",
       kClassical,
       {Features()},
       {Floats("coefficients", {1, 2, -1, 0.5, 0, 1, 1, -2}), Floats("intercepts", {0.25, -0.5}),
        Int("targets", 2)},
       {F32({3, 2}, {0.875F, -2.875F, -3.1875F, 0, 2.8125F, -2.875F})}},
      classifier("NONE", {0.875F, -2.875F, 1.5F, -3.1875F, 0, 0.0625F, 2.8125F, -2.875F, -1.375F}),
      classifier("LOGISTIC", {0.705785F, 0.05340335F, 0.81757444F, 0.03963879F, 0.5F, 0.51561993F,
                              0.94334757F, 0.05340335F, 0.20181322F}),
      classifier("SOFTMAX", {0.34580973F, 0.00813266F, 0.64605761F, 0.01960088F, 0.47488579F,
                             0.50551331F, 0.9817664F, 0.00332628F, 0.01490733F})};
}

// Four support vectors over four features.
std::vector<AttributeMsg> VectorsWith(const char* kernel, double degree,
                                      std::vector<AttributeMsg> more) {
  std::vector<AttributeMsg> all = {
      Str("kernel_type", kernel), Floats("kernel_params", {0.5, 0.25, degree}),
      Floats("support_vectors", {1, 0, 2, -1, 0, 0.5, -0.5, 1, -1, 1, 0, 0.25, 0.5, 0.5, 1, 0})};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<Case> MachineRegressions() {
  const AttributeMsg weights = Floats("coefficients", {1, -2, 0.5, 0.25});
  const AttributeMsg rho = Floats("rho", {0.125});
  const auto regressor = [&](std::vector<AttributeMsg> attributes, std::vector<float> y) {
    return Case{"machine",    "SVMRegressor",        kClassical,
                {Features()}, std::move(attributes), {F32({3, 1}, std::move(y))}};
  };
  const auto of = [&](const char* kernel, double degree, std::vector<float> y) {
    return regressor(VectorsWith(kernel, degree, {weights, rho, Int("n_supports", 4)}),
                     std::move(y));
  };
  return {
      of("LINEAR", 3, {-6.1875F, 3.9375F, -4.625F}),
      of("POLY", 2, {1.6621094F, 0.70739746F, -0.88049316F}),
      of("POLY", 3, {-5.9104614F, 1.3461514F, -1.3269405F}),
      of("POLY", 4, {7.1978283F, 1.0117905F, -0.73454642F}),
      of("RBF", 3, {-0.39813F, 0.1776766F, -0.56039578F}),
      of("SIGMOID", 3, {-2.0230939F, 1.6636267F, -1.9280777F}),
      regressor(VectorsWith("RBF", 3, {weights, rho, Int("n_supports", 4), Int("one_class", 1)}),
                {-1, 1, -1}),
      regressor({weights, rho}, {-2.125F, 2.59375F, 0.84375F})};
}

Case TwoClassMachine(const char* post, bool probabilities, std::vector<float> y) {
  std::vector<AttributeMsg> more = {Floats("coefficients", {1, -2, 0.5, 0.25}),
                                    Floats("rho", {0.125}), Ints("vectors_per_class", {2, 2}),
                                    Ints("classlabels_ints", {7, 3}), Str("post_transform", post)};
  if (probabilities) more.push_back(Floats("prob_a", {-2}));
  if (probabilities) more.push_back(Floats("prob_b", {0.25}));
  return {"machine",
          "SVMClassifier",
          kClassical,
          {Features()},
          VectorsWith("RBF", 3, std::move(more)),
          {Integers({3, 7, 3}), F32({3, 2}, std::move(y))}};
}

Case ThreeClassMachine(const char* post, bool probabilities, std::vector<float> y) {
  std::vector<AttributeMsg> more = {
      Floats("coefficients", {1, -2, 0.5, 0.25, -0.5, 1, 2, -1}),
      Floats("rho", {0.125, -0.25, 0.5}), Ints("vectors_per_class", {1, 2, 1}),
      Ints("classlabels_ints", {7, 3, 5}), Str("post_transform", post)};
  if (probabilities) more.push_back(Floats("prob_a", {-2, -1, -3}));
  if (probabilities) more.push_back(Floats("prob_b", {0.25, 0, -0.5}));
  return {"machine",
          "SVMClassifier",
          kClassical,
          {Features()},
          VectorsWith("RBF", 3, std::move(more)),
          {Integers({3, 7, 3}), F32({3, 3}, std::move(y))}};
}

// Without support vectors: a linear function for each class.
Case LinearMachine(std::vector<double> weights, std::vector<int64_t> labels, const char* post,
                   std::vector<int64_t> best, std::vector<float> y) {
  const auto classes = static_cast<int64_t>(labels.size());
  return {"machine",
          "SVMClassifier",
          kClassical,
          {Features()},
          {Floats("coefficients", std::move(weights)), Floats("rho", {0.125}),
           Ints("classlabels_ints", std::move(labels)), Str("post_transform", post)},
          {Integers(std::move(best)), F32({3, classes}, std::move(y))}};
}

std::vector<Case> MachineCases() {
  return {
      TwoClassMachine(
          "NONE", false,
          {0.39813003F, -0.39813003F, -0.1776766F, 0.1776766F, 0.56039584F, -0.56039584F}),
      TwoClassMachine(
          "LOGISTIC", false,
          {0.59823829F, 0.40176171F, 0.45569736F, 0.54430264F, 0.63654417F, 0.36345583F}),
      TwoClassMachine(
          "SOFTMAX", false,
          {1.3981301F, -0.39813003F, 0.82232338F, 0.1776766F, 1.5603958F, -0.56039584F}),
      TwoClassMachine(
          "NONE", true,
          {0.25994143F, 0.74005854F, 0.52631032F, 0.47368962F, 0.20246011F, 0.79753983F}),
      ThreeClassMachine("NONE", false,
                        {-0.40374023F, -0.24447547F, 1.7249672F, 0.14539215F, -0.25450581F,
                         0.47092146F, -0.57600754F, -0.23539193F, 0.85971117F}),
      ThreeClassMachine("SOFTMAX", false,
                        {0.094547942F, 0.11087148F, 0.79458058F, 0.32731599F, 0.21942887F,
                         0.45325521F, 0.15132079F, 0.21272869F, 0.63595051F}),
      ThreeClassMachine("NONE", true,
                        {0.19653238F, 0.7500453F, 0.053422291F, 0.34511626F, 0.47972244F,
                         0.17516133F, 0.15192412F, 0.7802121F, 0.067863829F}),
      ThreeClassMachine("SOFTMAX", true,
                        {0.27731472F, 0.48234808F, 0.24033721F, 0.33469567F, 0.38292068F,
                         0.28238368F, 0.26358971F, 0.49407226F, 0.24233802F}),
      LinearMachine({1, 2, -1, 0.5, 0, 1, 1, -2}, {7, 3}, "NONE", {3, 3, 3},
                    {0.75F, -2.25F, -3.3125F, 0.625F, 2.6875F, -2.25F}),
      LinearMachine({1, 2, 1, 0.5, 0, 1, 1, 2}, {7, 3}, "NONE", {3, 3, 7},
                    {-0.75F, 1.75F, -2.3125F, -1.875F, 0.4375F, 0.25F}),
      LinearMachine({1, 2, -1, 0.5, 0, 1, 1, -2, -1, 0, 0.5, 0.5}, {7, 3, 5}, "SOFTMAX", {5, 3, 7},
                    {0.28996751F, 0.014436631F, 0.69559586F, 0.011708825F, 0.60054815F, 0.38774303F,
                     0.9740234F, 0.0069861896F, 0.018990433F})};
}

// Three trees over four features; the second is but a leaf.
std::vector<AttributeMsg> TreesWith(std::vector<AttributeMsg> more) {
  std::vector<AttributeMsg> trees = {
      Ints("nodes_treeids", {0, 0, 0, 0, 0, 1, 2, 2, 2}),
      Ints("nodes_nodeids", {0, 1, 2, 3, 4, 0, 0, 1, 2}),
      Strings("nodes_modes", {"BRANCH_LEQ", "LEAF", "BRANCH_LT", "LEAF", "LEAF", "LEAF",
                              "BRANCH_GT", "LEAF", "LEAF"}),
      Ints("nodes_featureids", {1, 0, 3, 0, 0, 0, 2, 0, 0}),
      Floats("nodes_values", {0, 0, 0.5, 0, 0, 0, -0.25, 0, 0}),
      Ints("nodes_truenodeids", {1, 0, 3, 0, 0, 0, 1, 0, 0}),
      Ints("nodes_falsenodeids", {2, 0, 4, 0, 0, 0, 2, 0, 0})};
  trees.insert(trees.end(), more.begin(), more.end());
  return trees;
}

const std::vector<double> kLeaves = {1, 2, -3, 0.5, 4, -1},
                          kShares = {0.125, 0.25, 0, 0.25, 0.25, 0.5};

Case Regressor(const char* way, std::vector<float> y) {
  return {"trees",
          "TreeEnsembleRegressor",
          kClassical,
          {Features()},
          TreesWith({Str("aggregate_function", way), Floats("base_values", {0.125}),
                     Ints("target_treeids", {0, 0, 0, 1, 2, 2}),
                     Ints("target_nodeids", {1, 3, 4, 0, 1, 2}),
                     Ints("target_ids", {0, 0, 0, 0, 0, 0}), Floats("target_weights", kLeaves)}),
          {F32({3, 1}, std::move(y))}};
}

Case Classifier(const char* post, std::vector<float> y) {
  return {"forest",
          "TreeEnsembleClassifier",
          kClassical,
          {Features()},
          TreesWith({Str("post_transform", post), Ints("classlabels_int64s", {4, 6, 2}),
                     Ints("class_treeids", {0, 0, 0, 0, 1, 2, 2}),
                     Ints("class_nodeids", {1, 1, 3, 4, 0, 1, 2}),
                     Ints("class_ids", {0, 1, 2, 1, 1, 0, 2}),
                     Floats("class_weights", {0.5, 0.5, 0.25, 0.75, 0.5, 0.5, 0.75})}),
          {Integers({6, 4, 6}), F32({3, 3}, std::move(y))}};
}

Case TwoClasses(const char* post, const std::vector<double>& weights, std::vector<int64_t> labels,
                std::vector<float> y) {
  return {"two classes",
          "TreeEnsembleClassifier",
          kClassical,
          {Features()},
          TreesWith({Str("post_transform", post), Ints("classlabels_int64s", {4, 6}),
                     Floats("base_values", {0.125}), Ints("class_treeids", {0, 0, 0, 1, 2, 2}),
                     Ints("class_nodeids", {1, 3, 4, 0, 1, 2}),
                     Ints("class_ids", {0, 0, 0, 0, 0, 0}), Floats("class_weights", weights)}),
          {Integers(std::move(labels)), F32({3, 2}, std::move(y))}};
}

// As older converters write forests of two classes; labels of onnxruntime are others.
Case BothClasses() {
  Case c = Classifier("NONE", std::vector<float>(9));
  c.attributes[8] = Ints("classlabels_int64s", {4, 6});
  c.attributes[11] = Ints("class_ids", {0, 1, 0, 1, 1, 0, 0});
  c.expected = {Integers({6, 4, 4}), F32({3, 2}, {0.75F, 1.25F, 1, 1, 1.25F, 1})};
  return c;
}

// A second weight of a leaf for the one target does not count.
Case WeightsTwice() {
  Case c = Regressor("SUM", {-3.375F, 5.625F, 0.625F});
  c.attributes[9] = Ints("target_treeids", {0, 0, 0, 0, 1, 2, 2, 2});
  c.attributes[10] = Ints("target_nodeids", {1, 1, 3, 4, 0, 1, 2, 2});
  c.attributes[11] = Ints("target_ids", {0, 0, 0, 0, 0, 0, 0, 0});
  c.attributes[12] = Floats("target_weights", {1, 9, 2, -3, 0.5, 4, -1, 9});
  return c;
}

std::vector<Case> TreeCases() {
  return {
      BothClasses(),
      WeightsTwice(),
      Regressor("SUM", {-3.375F, 5.625F, 0.625F}),
      Regressor("AVERAGE", {-1.0416666F, 1.9583334F, 0.2916667F}),
      Regressor("MIN", {-2.875F, 0.625F, -0.875F}),
      Regressor("MAX", {0.625F, 4.125F, 1.125F}),
      Classifier("NONE", {0, 1.25F, 0.75F, 1, 1, 0, 0.5F, 1, 0.75F}),
      Classifier("SOFTMAX", {0.15134677F, 0.52825212F, 0.32040113F, 0.42231882F, 0.42231882F,
                             0.15536241F, 0.25427523F, 0.41922897F, 0.32649586F}),
      TwoClasses("NONE", kShares, {6, 6, 6}, {0.125F, 0.875F, 0.25F, 0.75F, 0, 1}),
      TwoClasses("NONE", kLeaves, {4, 6, 6}, {3.375F, -3.375F, -5.625F, 5.625F, -0.625F, 0.625F}),
      TwoClasses("LOGISTIC", kLeaves, {4, 6, 6},
                 {0.96691406F, 0.03308594F, 0.00359362F, 0.99640636F, 0.34864509F, 0.65135494F})};
}

TEST(Classical, AgreesWithOnnxruntime) {
  Check(FeatureCases());
  Check(OneHotCases());
  Check(CategoryCases());
  Check(LinearCases());
  Check(TreeCases());
  Check(MachineRegressions());
  Check(MachineCases());
}

TEST(Classical, WhatIsNotSupportedIsNamed) {
  Case c = Classifier("PROBIT", std::vector<float>(9));
  EXPECT_EQ(Refusal(c),
            "ai.onnx.ml.TreeEnsembleClassifier: post_transform \"PROBIT\" is not supported");
  c = Regressor("SUM", {0, 0, 0});
  c.attributes[1].ints[1] = 2;
  EXPECT_EQ(Refusal(c), "ai.onnx.ml.TreeEnsembleRegressor: tree 0 has two nodes 2");
  c = Regressor("SUM", {0, 0, 0});
  c.attributes[5].ints[0] = 9;
  EXPECT_EQ(Refusal(c), "ai.onnx.ml.TreeEnsembleRegressor: tree 0 has no node 9");
}

// 4 leaves and 2^62 targets have 2^64 weights, a count that wraps around to 0.
TEST(Classical, MoreTargetsThanMemoryHoldsAreAnError) {
  Case c = Regressor("SUM", {0, 0, 0});
  for (const int64_t targets : {int64_t{1} << 60, int64_t{1} << 62, INT64_MAX}) {
    std::erase_if(c.attributes, [](const AttributeMsg& a) { return a.name == "n_targets"; });
    c.attributes.push_back(Int("n_targets", targets));
    Loaded loaded;
    const Error error = Caught([&] { Import(loaded.context, ModelOf(c)); });
    EXPECT_EQ(error.code(), ErrorCode::kLimit) << error.Render();
  }
}

TEST(Classical, CategoriesThatDoNotFitAreRefused) {
  Case c = OneHotCases()[0];
  c.attributes[0] = Strings("cats_strings", {"1"});
  EXPECT_EQ(Refusal(c),
            "ai.onnx.ml.OneHotEncoder: the categories are of another type than the input");
  c.attributes.erase(c.attributes.begin());
  EXPECT_EQ(Refusal(c), "ai.onnx.ml.OneHotEncoder: the categories are missing, or twice there");
}

TEST(Classical, CategoriesComeInPairs) {
  Case c = CategoryCases()[0];
  c.attributes[1] = Ints("cats_int64s", {7});
  EXPECT_EQ(Refusal(c), "ai.onnx.ml.CategoryMapper: there are 1 numbers for 2 strings");
}

TEST(Classical, WithoutZerosAnUnknownCategoryIsAnError) {
  Case c = OneHotCases()[0];
  c.attributes[1] = Int("zeros", 0);
  Loaded loaded;
  Program program = Import(loaded.context, ModelOf(c));
  EXPECT_EQ(Caught([&] { RunProgram(program, FeedsOf(c)); }).id(), "run/index");
}

TEST(Classical, MachinesWhoseNumbersDoNotFitAreRefused) {
  const std::string name = "ai.onnx.ml.SVMClassifier: ";
  const auto with = [](Text attribute, AttributeMsg other) {
    Case c = ThreeClassMachine("NONE", true, std::vector<float>(9));
    std::erase_if(c.attributes, [&](const AttributeMsg& a) { return a.name == attribute; });
    c.attributes.push_back(std::move(other));
    return c;
  };
  EXPECT_EQ(Refusal(with("post_transform", Str("post_transform", "PROBIT"))),
            name + "post_transform \"PROBIT\" is not supported");
  EXPECT_EQ(Refusal(with("kernel_type", Str("kernel_type", "COSINE"))),
            name + "kernel_type \"COSINE\"");
  EXPECT_EQ(Refusal(with("kernel_params", Floats("kernel_params", {1}))),
            name + "1 kernel_params, three are expected");
  EXPECT_EQ(Refusal(with("rho", Floats("rho", {1}))), name + "1 rho for 3 pairs of classes");
  EXPECT_EQ(Refusal(with("prob_b", Floats("prob_b", {1}))),
            name + "3 prob_a and 1 prob_b for 3 pairs of classes");
  EXPECT_EQ(Refusal(with("coefficients", Floats("coefficients", {1}))),
            name + "1 coefficients for 4 support vectors of 3 classes");
  EXPECT_EQ(Refusal(with("vectors_per_class", Ints("vectors_per_class", {2, 3, -1}))),
            name + "vectors_per_class has negative numbers");
  EXPECT_EQ(Refusal(with("vectors_per_class", Ints("vectors_per_class", {2, 2}))),
            name + "2 vectors_per_class for 3 classes");
  constexpr int64_t kHalf = int64_t{1} << 62;
  EXPECT_EQ(Refusal(with("vectors_per_class", Ints("vectors_per_class", {kHalf, kHalf, kHalf}))),
            name + "4611686018427387904 support vectors of a class");
  const std::vector<int64_t> many(1 << 20);
  EXPECT_EQ(Refusal(with("classlabels_ints", Ints("classlabels_ints", many))),
            name + "3 vectors_per_class for 1048576 classes");
  EXPECT_EQ(Refusal(with("support_vectors", Floats("support_vectors", {1, 2, 3}))),
            name + "3 numbers of 4 support vectors");
  // Features that are one would be taken for all.
  Case c = ThreeClassMachine("NONE", true, std::vector<float>(9));
  c.inputs = {Ramp({3, 1}, 0)};
  Loaded loaded;
  EXPECT_THROW(Import(loaded.context, ModelOf(c)), Error);
}

// onnxruntime says of a row of NaN that all classes are as likely.
TEST(Classical, ProbabilitiesOfNoNumbersAreEven) {
  Case c = ThreeClassMachine("NONE", true, std::vector<float>(9));
  c.inputs[0].mutable_data<float>()[5] = NAN;
  Loaded loaded;
  Program program = Import(loaded.context, ModelOf(c, true));
  const NamedValues got = RunProgram(program, FeedsOf(c));
  const auto p = got[1].second.tensor().data<float>();
  EXPECT_NEAR(p[0], 0.19653238F, 1e-4F);
  for (size_t i = 3; i < 6; ++i) EXPECT_FLOAT_EQ(p[i], 1.0F / 3);
}

}  // namespace
}  // namespace lathe::onnx
