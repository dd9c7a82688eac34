#include "test/unit/frontend/contrib_case.h"

/// Operators that never became more than experiments of the standard, and vectors where those of
/// ai.onnx.ml speak of rows. What is expected was computed by onnxruntime 1.32.
namespace lathe::onnx {
namespace {

Case Early(Text op, Shape shape, std::vector<AttributeMsg> attributes, Tensor expected) {
  return {op.data(), op, "", {Ramp(std::move(shape), 0)}, std::move(attributes), {expected}};
}

TEST(ContribEarly, AgreesWithOnnxruntime) {
  Check({
      Early("Affine", {2, 3}, {Float("alpha", 2), Float("beta", 0.5F)},
            F32({2, 3}, {-2.25F, 1.25F, -1, 2.5F, 0.25F, -2})),
      Early("Affine", {2, 3}, {Float("alpha", 2)},
            F32({2, 3}, {-2.75F, 0.75F, -1.5F, 2, -0.25F, -2.5F})),
      Early("ParametricSoftplus", {2, 3}, {Float("alpha", 2), Float("beta", 0.5F)},
            F32({2, 3}, {0.814702F, 1.58257F, 1.046246F, 1.948154F, 1.324771F, 0.857401F})),
      Early("ScaledTanh", {2, 3}, {Float("alpha", 2), Float("beta", 0.5F)},
            F32({2, 3}, {-1.192747F, 0.370666F, -0.716714F, 0.924234F, -0.124837F, -1.109199F})),
      Early("ImageScaler", {1, 2, 2, 2}, {Floats("bias", {0.5, -1}), Float("scale", 0.25F)},
            F32({1, 2, 2, 2},
                {0.15625F, 0.59375F, 0.3125F, 0.75F, -1.03125F, -1.3125F, -0.875F, -1.15625F})),
      Early("Crop", {1, 1, 4, 5}, {Ints("border", {1, 0, 2, 1})},
            F32({1, 1, 3, 2}, {0.375F, -0.75F, 0.5F, -0.625F, 0.625F, -0.5F})),
      Early("Crop", {1, 1, 4, 5}, {Ints("border", {1, 2, 0, 0}), Ints("scale", {2, 3})},
            F32({1, 1, 2, 3}, {0.625F, -0.5F, 1.25F, 0.75F, -0.375F, 1.375F})),
  });
}

TEST(ContribEarly, WhatIsMissingIsNamed) {
  EXPECT_EQ(Refusal(Early("ImageScaler", {1, 2, 2, 2}, {}, F32({1}, {0}))),
            "ImageScaler: attribute 'bias' is missing");
  EXPECT_EQ(Refusal(Early("ScaledTanh", {2}, {Float("alpha", 1)}, F32({1}, {0}))),
            "ScaledTanh: attribute 'beta' is missing");
  EXPECT_EQ(Refusal(Early("Crop", {2, 3}, {Ints("border", {0, 0, 0, 0})}, F32({1}, {0}))),
            "Crop: the input is not [N, C, H, W]");
}

TEST(Classical, VectorsAreRows) {
  const Tensor row = F32({3}, {0.5F, -1, 2});
  const AttributeMsg weights = Floats("coefficients", {1, 2, 3, 3, 2, 1});
  Check({
      {"regressor",
       "LinearRegressor",
       kClassical,
       {row},
       {Floats("coefficients", {1, 2, 3}), Floats("intercepts", {0.5}), Int("targets", 1)},
       {F32({1, 1}, {5})}},
      {"classifier",
       "LinearClassifier",
       kClassical,
       {row},
       {weights, Floats("intercepts", {0.5, 0.25}), Ints("classlabels_ints", {7, 9})},
       {Tensor::Of<int64_t>({1}, {7}), F32({1, 2}, {5, 1.75F})}},
      {"features",
       "FeatureVectorizer",
       kClassical,
       {row, F32({1, 1, 2}, {3, 4})},
       {Ints("inputdimensions", {3, 2})},
       {F32({1, 5}, {0.5F, -1, 2, 3, 4})}},
      {"machine",
       "SVMRegressor",
       kClassical,
       {row},
       {Str("kernel_type", "LINEAR"), Floats("kernel_params", {0.5, 0, 3}), Int("n_supports", 2),
        Floats("support_vectors", {1, 2, 3, 0, 1, 0}), Floats("coefficients", {1, -1}),
        Floats("rho", {0.25})},
       {F32({1, 1}, {5.75F})}},
  });
  EXPECT_EQ(
      Refusal({"features",
               "FeatureVectorizer",
               kClassical,
               {Ramp({2, 3}, 0)},
               {Ints("inputdimensions", {4})},
               {F32({1}, {0})}}),
      "ai.onnx.ml.FeatureVectorizer: input 0 has 3 features, not 4 as 'inputdimensions' says");
}

}  // namespace
}  // namespace lathe::onnx
