#include <gtest/gtest.h>

#include <algorithm>

#include "test/unit/frontend/contrib_case.h"

/// Operators of com.microsoft. What is expected was computed by onnxruntime 1.32.
namespace lathe::onnx {
namespace {

std::vector<Case> ActivationCases() {
  return {
      {"gelu",
       "Gelu",
       "com.microsoft",
       {Ramp({6}, 0)},
       {},
       {F32({6}, {-0.1162779F, 0.2423137F, -0.1699705F, 0.8413447F, -0.05628272F, -0.1320622F})}},
      {"fast_gelu_bias",
       "FastGelu",
       "com.microsoft",
       {Ramp({2, 3}, 0), Ramp({3}, 1)},
       {},
       {F32({2, 3}, {-0.1165114F, -0.1700394F, -0.0562828F, 0.841192F, -0.1322858F, -0.1662789F})}},
      {"bias_gelu",
       "BiasGelu",
       "com.microsoft",
       {Ramp({2, 3}, 0), Ramp({3}, 1)},
       {},
       {F32({2, 3},
            {-0.1162779F, -0.1699705F, -0.05628272F, 0.8413447F, -0.1320622F, -0.166241F})}},
      {"quick_gelu",
       "QuickGelu",
       "com.microsoft",
       {Ramp({6}, 0)},
       {Float("alpha", 0.5F)},
       {F32({6}, {-0.4600604F, 0.2050268F, -0.3055001F, 0.6224593F, -0.06054751F, -0.4358065F})}}};
}

std::vector<Case> ProductCases() {
  return {{"fused_matmul",
           "FusedMatMul",
           "com.microsoft",
           {Ramp({2, 3, 2}, 0), Ramp({2, 3, 2}, 1)},
           {Int("transA", 1), Float("alpha", 0.5F)},
           {F32({2, 2, 2}, {-0.3125F, 0.953125F, -0.46875F, -0.5390625F, -0.6015625F, 1.453125F,
                            0.390625F, -0.5078125F})}},
          {"fused_matmul_batch",
           "FusedMatMul",
           "com.microsoft",
           {Ramp({2, 3, 2}, 0), Ramp({3, 2, 2}, 1)},
           {Int("transBatchA", 1), Int("transBatchB", 0), Int("transB", 1)},
           {F32({3, 2, 2}, {-0.421875F, -1.046875F, 0.703125F, 0.625F, -0.8125F, 1.5F, 1.40625F,
                            -1.125F, -1.671875F, 1.0625F, 1.28125F, -0.828125F})}},
          {"transpose_matmul",
           "TransposeMatMul",
           "com.microsoft",
           {Ramp({2, 3}, 0), Ramp({4, 3}, 1)},
           {Int("transB", 1)},
           {F32({2, 4}, {-0.890625F, 1.0625F, 1.9375F, -1.140625F, -0.640625F, -0.8125F, -0.625F,
                         2.4375F})}}};
}

std::vector<Case> ConvCases() {
  return {{"fused_conv",
           "FusedConv",
           "com.microsoft",
           {Ramp({1, 2, 3, 3}, 0), Ramp({2, 2, 2, 2}, 1), Ramp({2}, 2), Ramp({1, 2, 2, 2}, 3)},
           {Str("activation", "LeakyRelu"), Floats("activation_params", {0.25})},
           {F32({1, 2, 2, 2}, {2.8125F, -0.2421875F, 3.734375F, 1.75F, 4.203125F, -0.6679688F,
                               0.15625F, -0.5117188F})}},
          {"fused_gemm",
           "FusedGemm",
           "com.microsoft",
           {Ramp({2, 3}, 0), Ramp({3, 2}, 1), Ramp({2}, 2)},
           {Str("activation", "Elu"), Float("activation_alpha", 0.5F)},
           {F32({2, 2}, {0.671875F, 1.515625F, -0.1166367F, -0.3102214F})}}};
}

std::vector<Case> NormCases() {
  return {{"skip_norm",
           "SkipLayerNormalization",
           "com.microsoft",
           {Ramp({1, 2, 4}, 0), Ramp({2, 4}, 1), Ramp({4}, 2), {}, Ramp({4}, 4)},
           {Float("epsilon", 0.5F)},
           {F32({1, 2, 4}, {0.03791751F, -0.1034114F, 0.7480091F, 1.08582F, 1.772707F, -0.1749685F,
                            0.8702381F, 0.3545415F}),
            {},
            {},
            F32({1, 2, 4}, {-0.125F, -0.625F, -1.125F, 1.25F, 2.375F, -1, -1.5F, 0.875F})}},
          {"skip_rms",
           "SkipSimplifiedLayerNormalization",
           "com.microsoft",
           {Ramp({1, 2, 4}, 0), Ramp({1, 2, 4}, 1), Ramp({4}, 2)},
           {},
           {F32({1, 2, 4}, {-2.293247F, -0.2274294F, 0.1326672F, 0.5306686F, 1.849902F, -0.3363458F,
                            0.5232046F, 0.1308011F}),
            {},
            {},
            F32({1, 2, 4}, {-1.375F, -0.75F, -0.125F, 0.5F, 1.125F, -1.125F, -0.5F, 0.125F})}},
          {"rms",
           "SimplifiedLayerNormalization",
           "",
           {Ramp({2, 4}, 0), Ramp({4}, 1)},
           {Float("epsilon", 0.5F)},
           {F32({2, 4}, {-0, -0.3567486F, -0.3963873F, -0.4228131F, -0, 1.369306F, 0.3042903F,
                         0.3042903F})}}};
}

std::vector<Case> EmbedCases() {
  return {{"embed",
           "EmbedLayerNormalization",
           "com.microsoft",
           {Tensor::Of<int32_t>({2, 2}, {1, 2, 0, 3}), Tensor::Of<int32_t>({2, 2}, {0, 1, 1, 1}),
            Ramp({4, 4}, 2), Ramp({3, 4}, 3), Ramp({2, 4}, 4), Ramp({4}, 5), Ramp({4}, 6),
            Tensor::Of<int32_t>({2, 2}, {1, 0, 0, 1})},
           {},
           {F32({2, 2, 4}, {0.825485F, 2.138027F, -0.9816152F, 0.644118F, 0.878653F, -0.8936629F,
                            -1.730384F, 0.6407243F, 0.7895898F, -0.6149187F, -1.292705F, 1.631231F,
                            1.119759F, -2.219743F, -1.368726F, 1.364041F}),
            Tensor::Of<int32_t>({2}, {1, 1}),
            F32({2, 2, 4}, {0.875F, -2.5F, -0.125F, -0.625F, 1.75F, 1.25F, -2.125F, 0.25F, 0.875F,
                            0.375F, -0.125F, -0.625F, 0.125F, 2.5F, -0.875F, -1.375F})}},
          {"embed_positions",
           "EmbedLayerNormalization",
           "com.microsoft",
           {Tensor::Of<int32_t>({1, 2}, {1, 2}),
            {},
            Ramp({4, 4}, 2),
            Ramp({3, 4}, 3),
            {},
            Ramp({4}, 5),
            Ramp({4}, 6),
            {},
            Tensor::Of<int32_t>({1, 2}, {2, 0})},
           {},
           {F32({1, 2, 4}, {1.190816F, -0.6722586F, -0.6595902F, 1.72506F, 0.7583135F, 1.706502F,
                            -1.308343F, 0.4275534F}),
            Tensor::Of<int32_t>({1}, {0})}}};
}

std::vector<Case> AttentionCases() {
  return {
      {"attention",
       "Attention",
       "com.microsoft",
       {Ramp({2, 2, 3}, 0), Ramp({3, 12}, 1), Ramp({12}, 2),
        Tensor::Of<int32_t>({4}, {2, 1, 0, 1})},
       {Int("num_heads", 2), Float("mask_filter_value", -2.0F)},
       {F32({2, 2, 4}, {-1.152429F, 1.008407F, -0.05011565F, -1.451358F, -1.151043F, 1.005789F,
                        -0.4990019F, 0.9576644F, 1.658286F, 0.9753157F, -2.969326F, 1.046875F,
                        1.666567F, 0.9808363F, -2.963939F, 1.046875F})}},
      {"attention_past",
       "Attention",
       "com.microsoft",
       {Ramp({1, 2, 3}, 0), Ramp({3, 12}, 1), {}, {}, Ramp({2, 1, 2, 1, 2}, 4)},
       {Int("num_heads", 2), Int("unidirectional", 1)},
       {F32({1, 2, 4}, {-0.3703003F, 1.005293F, 0.3713109F, -0.5188938F, -0.6826201F, 1.287779F,
                        0.7307153F, 0.5307369F}),
        F32({2, 1, 2, 3, 2}, {1.25F,   0.125F,  -2.09375F,  0.953125F, 1.1875F,    1.25F,
                              -1,      0.75F,   0.765625F,  -1.21875F, -1.921875F, 1.375F,
                              -0.375F, 1.375F,  -0.328125F, -2.3125F,  -2.15625F,  1.140625F,
                              0.25F,   -0.875F, 0.734375F,  0.546875F, 1.203125F,  -1.96875F})}},
      {"attention_wide_values",
       "Attention",
       "com.microsoft",
       {Ramp({1, 2, 3}, 0), Ramp({3, 14}, 1), Ramp({14}, 2), Tensor::Of<int32_t>({1, 2}, {1, 0})},
       {Int("num_heads", 2), Ints("qkv_hidden_sizes", {4, 4, 6})},
       {F32({1, 2, 6}, {2.125F, -0.984375F, -2.296875F, 2.5F, -2.765625F, 2.03125F, 2.125F,
                        -0.984375F, -2.296875F, 2.5F, -2.765625F, 2.03125F})}}};
}

std::vector<Case> HeadCases() {
  return {
      {"heads",
       "MultiHeadAttention",
       "com.microsoft",
       {Ramp({1, 2, 4}, 0), Ramp({1, 3, 4}, 1), Ramp({1, 3, 6}, 2), Ramp({14}, 3),
        Tensor::Of<int32_t>({1, 3}, {1, 0, 1}), Ramp({1, 2, 2, 3}, 5)},
       {Int("num_heads", 2)},
       {F32({1, 2, 6}, {0.1311879F, 1.825418F, -0.4245822F, -1.412581F, 1.063317F, -1.186683F,
                        0.8280529F, 1.520539F, -0.7294606F, -0.327446F, 0.5885701F, -1.66143F})}},
      {"heads_past",
       "MultiHeadAttention",
       "com.microsoft",
       {Ramp({1, 1, 4}, 0),
        Ramp({1, 1, 4}, 1),
        Ramp({1, 1, 4}, 2),
        {},
        Tensor::Of<int32_t>({1}, {2}),
        {},
        Ramp({1, 2, 2, 2}, 6),
        Ramp({1, 2, 2, 2}, 7)},
       {Int("num_heads", 2), Float("scale", 0.5F)},
       {F32({1, 1, 4}, {0.1504891F, -0.5167608F, 0.4152307F, -0.1222863F}),
        F32({1, 2, 3, 2},
            {1.125F, 0, -1.125F, 0.625F, 0, -1.125F, -0.5F, 1.25F, 0.125F, -1, 0.625F, -0.5F}),
        F32({1, 2, 3, 2}, {-0.375F, 1.375F, 0.25F, -0.875F, 1.375F, 0.25F, 0.875F, -0.25F, -1.375F,
                           0.375F, -0.875F, 0.875F})}},
      {"heads_cross",
       "MultiHeadAttention",
       "com.microsoft",
       {Ramp({1, 2, 4}, 0), Ramp({1, 2, 3, 2}, 1), Ramp({1, 2, 3, 2}, 2)},
       {Int("num_heads", 2)},
       {F32({1, 2, 4}, {0.3449808F, 0.1188362F, 0.5647221F, -0.3543339F, 0.447694F, 0.1730929F,
                        -0.5191373F, 0.1415049F})}},
      // The bias is of the queries alone.
      {"heads_cross_bias",
       "MultiHeadAttention",
       "com.microsoft",
       {Ramp({1, 2, 4}, 0), Ramp({1, 2, 3, 2}, 1), Ramp({1, 2, 3, 2}, 2), Ramp({12}, 3)},
       {Int("num_heads", 2)},
       {F32({1, 2, 4}, {0.704896F, 0.2633433F, 0.3027519F, -0.2411148F, 0.7897469F, 0.2806359F,
                        -0.9485311F, 0.3501104F})}}};
}

std::vector<Case> GroupQueryCases() {
  const AttributeMsg heads = Int("num_heads", 2), shared = Int("kv_num_heads", 1);
  const auto lengths = [](std::vector<int32_t> last) {
    return Tensor::Of<int32_t>({static_cast<int64_t>(last.size())}, last);
  };
  return {
      {"group_query_prompt",
       "GroupQueryAttention",
       kContrib,
       {Ramp({2, 2, 16}, 0),
        Ramp({2, 2, 8}, 1),
        Ramp({2, 2, 8}, 2),
        {},
        {},
        lengths({1, 1}),
        Tensor::Scalar<int32_t>(2)},
       {heads, shared, Float("scale", 0.5F), Float("softcap", 2)},
       {F32({2, 2, 16},
            {1.375F,      0.25F,       -0.875F,     0.875F,      -0.25F,      -1.375F,
             0.375F,      -0.75F,      1.375F,      0.25F,       -0.875F,     0.875F,
             -0.25F,      -1.375F,     0.375F,      -0.75F,      1.238059F,   0.1130592F,
             -1.011941F,  0.7380592F,  -0.3869408F, -0.4620615F, 0.2380592F,  -0.8869408F,
             1.280458F,   0.1554581F,  -0.969542F,  0.7804582F,  -0.3445419F, -0.7447207F,
             0.2804581F,  -0.8445419F, 0.625F,      -0.5F,       1.25F,       0.125F,
             -1,          0.75F,       -0.375F,     1.375F,      0.625F,      -0.5F,
             1.25F,       0.125F,      -1,          0.75F,       -0.375F,     1.375F,
             0.5231381F,  -0.6018619F, 1.148138F,   0.02313811F, -1.101862F,  0.6481381F,
             -0.4768619F, 1.273138F,   0.3504761F,  -0.7745239F, 0.9754761F,  -0.1495239F,
             -1.274524F,  0.4754761F,  -0.6495239F, 1.100476F})}},
      {"group_query_written",
       "GroupQueryAttention",
       kContrib,
       {Ramp({2, 1, 64}, 0),
        {},
        {},
        Ramp({2, 1, 5, 16}, 3),
        Ramp({2, 1, 5, 16}, 4),
        lengths({3, 2}),
        Tensor::Scalar<int32_t>(4),
        Ramp({5, 8}, 7),
        Ramp({5, 8}, 8)},
       {heads, shared, Int("do_rotary", 1), Int("local_window_size", 2)},
       {F32({2, 1, 32},
            {-0.375617F,  -0.7783189F,  0.2493829F,  -0.875617F,     0.8743829F,  -0.2506171F,
             -0.6533189F, 0.3743829F,   -0.7506171F, 0.9993829F,     -0.1256171F, -0.5283189F,
             0.4993829F,  -0.625617F,   1.124383F,   -0.0006170644F, -0.3662041F, -0.8230308F,
             0.2587959F,  -0.8662041F,  0.883796F,   -0.2412041F,    -0.6980307F, 0.3837959F,
             -0.7412041F, 1.008796F,    -0.1162041F, -0.5730307F,    0.508796F,   -0.6162041F,
             1.133796F,   0.008795933F, -0.5479115F, 1.202089F,      0.07708853F, -1.047912F,
             0.7020885F,  -0.4229115F,  -0.5536705F, 0.2020885F,     -0.9229115F, 0.8270885F,
             -0.2979115F, -0.4286706F,  0.3270885F,  -0.7979115F,    0.9520885F,  -0.1729115F,
             -0.5127353F, 1.237265F,    0.1122647F,  -1.012735F,     0.7372647F,  -0.3877354F,
             -0.7207571F, 0.2372647F,   -0.8877354F, 0.8622646F,     -0.2627353F, -0.5957571F,
             0.3622647F,  -0.7627354F,  0.9872646F,  -0.1377354F})}},
      {"group_query_grows",
       "GroupQueryAttention",
       kContrib,
       {Ramp({1, 1, 16}, 0), Ramp({1, 1, 8}, 1), Ramp({1, 1, 8}, 2), Ramp({1, 1, 2, 8}, 3),
        Ramp({1, 1, 2, 8}, 4), lengths({2}), Tensor::Scalar<int32_t>(3)},
       {heads, shared},
       {F32({1, 1, 16}, {1.03463F, -0.09036961F, -1.21537F, 0.5346305F, -0.5903696F, 0.6576238F,
                         0.0346304F, -1.09037F, 1.162252F, 0.03725224F, -1.087748F, 0.6622524F,
                         -0.4627478F, 0.3344997F, 0.1622522F, -0.9627479F}),
        F32({1, 1, 3, 8}, {-0.125F, -1.25F,  0.5F,   -0.625F, 1.125F, 0,       -1.125F, 0.625F,
                           -0.5F,   1.25F,   0.125F, -1,      0.75F,  -0.375F, 1.375F,  0.25F,
                           0,       -1.125F, 0.625F, -0.5F,   1.25F,  0.125F,  -1,      0.75F}),
        F32({1, 1, 3, 8}, {1.25F,  0.125F, -1,      0.75F,  -0.375F, 1.375F,  0.25F,   -0.875F,
                           0.875F, -0.25F, -1.375F, 0.375F, -0.75F,  1,       -0.125F, -1.25F,
                           1.375F, 0.25F,  -0.875F, 0.875F, -0.25F,  -1.375F, 0.375F,  -0.75F})}}};
}

std::vector<Case> OtherCases() {
  return {{"rotary",
           "RotaryEmbedding",
           "com.microsoft",
           {Ramp({1, 2, 8}, 0), Tensor::Of<int64_t>({1}, {1}), Ramp({4, 2}, 2), Ramp({4, 2}, 3)},
           {},
           {F32({1, 2, 8}, {1.578125F, 0.953125F, -0.03125F, 0.640625F, -0.140625F, -1.484375F,
                            -0.5F, 0.234375F, 0.984375F, -0, 1.546875F, -0.859375F, -0.015625F,
                            -1.71875F, -0.59375F, 1.375F})}},
          {"rotary_part",
           "RotaryEmbedding",
           "com.microsoft",
           {Ramp({1, 2, 2, 6}, 0), Tensor::Of<int64_t>({1, 2}, {3, 0}), Ramp({4, 2}, 2),
            Ramp({4, 2}, 3)},
           {Int("num_heads", 2), Int("rotary_embedding_dim", 4), Int("interleaved", 1)},
           {F32({1, 2, 2, 6}, {-0.09375F, 1.6875F,    -0.0625F, -1.21875F, -0.125F, -1.25F,
                               0.609375F, -0.921875F, 0.28125F, -1.40625F, -1.125F, 0.625F,
                               1.21875F,  1.03125F,   0.53125F, 0.828125F, 0.75F,   -0.375F,
                               1.921875F, 0.171875F,  0.875F,   1.3125F,   -0.25F,  -1.375F})}},
          {"rotary_sections",
           "MRotaryEmbedding",
           "com.microsoft",
           {Ramp({1, 2, 8}, 0), Tensor::Of<int64_t>({3, 1, 2}, {3, 0, 1, 2, 2, 3}), Ramp({4, 4}, 2),
            Ramp({4, 4}, 3)},
           {Ints("mrope_section", {2, 1, 1}), Int("mrope_layout", 0), Int("num_heads", 1)},
           {F32({1, 2, 8}, {0.953125F, -0.046875F, 0.28125F, -0.125F, -0.953125F, -1.546875F,
                            1.03125F, -1.3125F, 1.484375F, 1.5625F, 1.390625F, -0.453125F,
                            -0.828125F, 0.3125F, -0.296875F, 1.28125F})}},
          {"rotary_interleaved_sections",
           "MRotaryEmbedding",
           "com.microsoft",
           {Ramp({1, 2, 8}, 0), Tensor::Of<int64_t>({3, 1, 2}, {3, 0, 1, 2, 2, 3}), Ramp({4, 4}, 2),
            Ramp({4, 4}, 3)},
           {Ints("mrope_section", {2, 1, 1}), Int("mrope_layout", 1), Int("num_heads", 1)},
           {F32({1, 2, 8}, {0.953125F, -0.515625F, 0.875F, -0.96875F, -0.953125F, 1.71875F,
                            -0.71875F, 0.953125F, 1.484375F, -1.5625F, -0.171875F, -0.078125F,
                            -0.828125F, -0.15625F, -1.546875F, -1.265625F})}},
          {"unique",
           "Unique",
           "com.microsoft",
           {F32({5}, {2, 1, 2, -3, 1})},
           {},
           {F32({3}, {2, 1, -3}), Integers({0, 1, 0, 2, 1}), Integers({2, 2, 1})}},
          {"grid_sample",
           "GridSample",
           "com.microsoft",
           {Ramp({1, 1, 3, 3}, 0), Ramp({1, 2, 2, 2}, 1)},
           {Str("mode", "bicubic"), Str("padding_mode", "reflection")},
           {F32({1, 1, 2, 2}, {0.4555664F, -0.8828453F, -0.9613177F, 0.6699219F})}}};
}

std::vector<Case> QuantizedCases() {
  return {{"qadd",
           "QLinearAdd",
           kContrib,
           {Bytes({2, 3}, 0, ElementType::kU8), F32({}, {0.25F}), Tensor::Of<uint8_t>({}, {100}),
            Bytes({3}, 1, ElementType::kU8), F32({}, {0.5F}), Tensor::Of<uint8_t>({}, {20}),
            F32({}, {0.75F}), Tensor::Of<uint8_t>({}, {60})},
           {},
           {Tensor::Of<uint8_t>({2, 3}, {21, 58, 95, 58, 95, 132})}},
          {"qmul",
           "QLinearMul",
           kContrib,
           {Bytes({2, 3}, 0, ElementType::kI8), F32({}, {0.03F}), Tensor::Of<int8_t>({}, {-9}),
            Bytes({1}, 1, ElementType::kI8), F32({}, {0.05F}), Tensor::Of<int8_t>({}, {3}),
            F32({}, {0.1F}), Tensor::Of<int8_t>({}, {7})},
           {},
           {Tensor::Of<int8_t>({2, 3}, {127, 127, 81, 16, -49, -114})}},
          {"qsigmoid",
           "QLinearSigmoid",
           kContrib,
           {Bytes({6}, 0, ElementType::kU8), F32({}, {0.05F}), Tensor::Of<uint8_t>({}, {120}),
            F32({}, {0.00390625F}), Tensor::Of<uint8_t>({}, {0})},
           {},
           {Tensor::Of<uint8_t>({6}, {1, 4, 23, 100, 205, 246})}},
          {"qleaky",
           "QLinearLeakyRelu",
           kContrib,
           {Bytes({6}, 0, ElementType::kU8), F32({}, {0.05F}), Tensor::Of<uint8_t>({}, {120}),
            F32({}, {0.06F}), Tensor::Of<uint8_t>({}, {40})},
           {Float("alpha", 0.25F)},
           {Tensor::Of<uint8_t>({6}, {15, 23, 30, 38, 63, 94})}},
          {"qaverage",
           "QLinearAveragePool",
           kContrib,
           {Bytes({1, 1, 4, 5}, 0, ElementType::kU8), F32({}, {0.05F}),
            Tensor::Of<uint8_t>({}, {120}), F32({}, {0.04F}), Tensor::Of<uint8_t>({}, {90})},
           {Ints("kernel_shape", {3, 3}), Ints("pads", {1, 1, 1, 1}), Ints("strides", {2, 2}),
            Int("count_include_pad", 0)},
           {Tensor::Of<uint8_t>({1, 1, 2, 3}, {79, 44, 61, 112, 112, 94})}},
          {"qglobal",
           "QLinearGlobalAveragePool",
           kContrib,
           {Bytes({1, 2, 3, 3}, 0, ElementType::kU8), F32({}, {0.05F}),
            Tensor::Of<uint8_t>({}, {120}), F32({}, {0.04F}), Tensor::Of<uint8_t>({}, {90})},
           {},
           {Tensor::Of<uint8_t>({1, 2, 1, 1}, {55, 88})}},
          {"qconcat",
           "QLinearConcat",
           kContrib,
           {F32({}, {0.5F}), Tensor::Of<uint8_t>({}, {30}), Bytes({2, 2}, 0, ElementType::kU8),
            F32({}, {0.25F}), Tensor::Of<uint8_t>({}, {100}), Bytes({2, 1}, 3, ElementType::kU8),
            F32({}, {1}), Tensor::Of<uint8_t>({}, {5})},
           {Int("axis", 1)},
           {Tensor::Of<uint8_t>({2, 3}, {0, 0, 86, 17, 36, 160})}},
          {"qsoftmax",
           "QLinearSoftmax",
           kContrib,
           {Bytes({2, 4}, 0, ElementType::kU8), F32({}, {0.05F}), Tensor::Of<uint8_t>({}, {120}),
            F32({}, {0.00390625F}), Tensor::Of<uint8_t>({}, {0})},
           {Int("axis", -1), Int("opset", 13)},
           {Tensor::Of<uint8_t>({2, 4}, {1, 5, 34, 216, 5, 34, 217, 0})}},
          {"qwhere",
           "QLinearWhere",
           kContrib,
           {Tensor::Of<bool>({3}, {true, false, true}), Bytes({3}, 0, ElementType::kU8),
            F32({}, {0.25F}), Tensor::Of<uint8_t>({}, {100}), Bytes({3}, 1, ElementType::kU8),
            F32({}, {0.5F}), Tensor::Of<uint8_t>({}, {20}), F32({}, {0.75F}),
            Tensor::Of<uint8_t>({}, {60})},
           {},
           {Tensor::Of<uint8_t>({3}, {27, 79, 51})}}};
}

std::vector<Case> QuantizedProductCases() {
  return {
      {"qgemm",
       "QGemm",
       kContrib,
       {Bytes({2, 4}, 0, ElementType::kU8), F32({}, {0.02F}), Tensor::Of<uint8_t>({}, {130}),
        Bytes({3, 4}, 1, ElementType::kI8), F32({3}, {0.01F, 0.03F, 0.02F}),
        Tensor::Of<int8_t>({3}, {0, 0, 0}), Tensor::Of<int32_t>({3}, {100, -2000, 30}),
        F32({}, {0.3F}), Tensor::Of<uint8_t>({}, {125})},
       {Int("transB", 1)},
       {Tensor::Of<uint8_t>({2, 3}, {141, 91, 140, 119, 176, 115})}},
      {"qgemm_f32",
       "QGemm",
       kContrib,
       {Bytes({2, 4}, 0, ElementType::kU8), F32({}, {0.02F}), Tensor::Of<uint8_t>({}, {130}),
        Bytes({4, 3}, 1, ElementType::kI8), F32({}, {0.01F}), Tensor::Of<int8_t>({}, {4})},
       {Float("alpha", 1.0F)},
       {F32({2, 3}, {2.1702F, 2.7762F, 0.571F, 2.2902F, -2.01F, -1.6918F})}},
      {"integer_to_float",
       "MatMulIntegerToFloat",
       kContrib,
       {Bytes({2, 4}, 0, ElementType::kU8),
        Bytes({4, 3}, 1, ElementType::kI8),
        F32({}, {0.02F}),
        F32({3}, {0.01F, 0.03F, 0.02F}),
        Tensor::Of<uint8_t>({}, {130}),
        {},
        Ramp({3}, 2)},
       {},
       {F32({2, 3}, {3.3068F, 7.8634F, -0.2098F, 3.6996F, -5.6768F, -4.1898F})}},
      {"dynamic_matmul",
       "DynamicQuantizeMatMul",
       kContrib,
       {Ramp({2, 4}, 0), Bytes({4, 3}, 1, ElementType::kI8), F32({}, {0.01F}),
        Tensor::Of<int8_t>({}, {3}), Ramp({3}, 2)},
       {},
       {F32({2, 3}, {1.82448F, 2.310476F, 0.9028971F, 2.338039F, -0.6007157F, -2.277088F})}},
      {"four_bits",
       "MatMulNBits",
       kContrib,
       {Ramp({2, 32}, 0), Bytes({3, 2, 8}, 1, ElementType::kU8), Ramp({6}, 2)},
       {Int("K", 32), Int("N", 3), Int("bits", 4), Int("block_size", 16)},
       {F32({2, 3}, {36.98438F, 12.25F, 1.03125F, -1.65625F, -29.3125F, -3.65625F})}},
      {"four_bits_zero",
       "MatMulNBits",
       kContrib,
       {Ramp({2, 40}, 0), Bytes({2, 3, 8}, 1, ElementType::kU8), Ramp({6}, 2),
        Bytes({4}, 3, ElementType::kU8)},
       {Int("K", 40), Int("N", 2), Int("bits", 4), Int("block_size", 16)},
       {F32({2, 2}, {3.140625F, 8.78125F, -30.40625F, 10.875F})}},
      {"four_bits_real_zero",
       "MatMulNBits",
       kContrib,
       {Ramp({1, 32}, 0), Bytes({2, 2, 8}, 1, ElementType::kU8), Ramp({4}, 2), Ramp({2, 2}, 5)},
       {Int("K", 32), Int("N", 2), Int("bits", 4), Int("block_size", 16)},
       {F32({1, 2}, {18.59766F, 28.71094F})}},
      {"eight_bits",
       "MatMulNBits",
       kContrib,
       {Ramp({1, 32}, 0), Bytes({2, 2, 16}, 1, ElementType::kU8), Ramp({2, 2}, 2),
        Bytes({2, 2}, 4, ElementType::kU8)},
       {Int("K", 32), Int("N", 2), Int("bits", 8), Int("block_size", 16)},
       {F32({1, 2}, {222.9844F, -111.4531F})}},
      {"four_bits_rounded",
       "MatMulNBits",
       kContrib,
       {Ramp({2, 64}, 0), Bytes({3, 2, 16}, 1, ElementType::kU8), Ramp({3, 2}, 2)},
       {Int("K", 64), Int("N", 3), Int("bits", 4), Int("block_size", 32), Int("accuracy_level", 4)},
       {F32({2, 3}, {35.98142F, -16.53113F, 42.54786F, 65.8579F, -29.7655F, 34.45756F})}},
      {"eight_bits_rounded",
       "MatMulNBits",
       kContrib,
       {Ramp({2, 40}, 0), Bytes({2, 3, 16}, 1, ElementType::kU8), Ramp({2, 3}, 2),
        Bytes({2, 3}, 3, ElementType::kU8)},
       {Int("K", 40), Int("N", 2), Int("bits", 8), Int("block_size", 16), Int("accuracy_level", 4)},
       {F32({2, 2}, {349.5688F, 40.0009F, -656.6066F, -136.0181F})}}};
}

TEST(Contrib, AgreesWithOnnxruntime) {
  Check(ActivationCases());
  Check(ProductCases());
  Check(ConvCases());
  Check(NormCases());
  Check(EmbedCases());
  Check(AttentionCases());
  Check(HeadCases());
  Check(GroupQueryCases());
  Check(OtherCases());
}

TEST(Contrib, SmallIntegersAgreeWithOnnxruntime) {
  Check(QuantizedCases());
  Check(QuantizedProductCases());
}

// And is written as the operator again.
TEST(Contrib, SmallWeightsStaySmall) {
  for (const Case& c : QuantizedProductCases()) {
    if (c.op != "MatMulNBits") continue;
    Loaded loaded;
    const Program program = Import(loaded.context, ModelOf(c));
    const auto is_one = [](const Operation& op) { return op.name() == "nn.matmul_nbits"; };
    EXPECT_TRUE(std::ranges::any_of(*program.block(), is_one)) << c.name;
    const std::string bytes = SerializeOnnx(program);
    EXPECT_NE(bytes.find("com.microsoft"), std::string::npos) << c.name;
    Program again = ImportOnnx(loaded.context, BufferOf(bytes), "again.onnx", "");
    ExpectNear(RunProgram(again, FeedsOf(c))[0].second.tensor(), c.expected[0], c.name);
  }
}

TEST(Contrib, WhatIsNotSupportedIsNamed) {
  const Tensor x = Ramp({1, 2, 4}, 0), w = Ramp({4, 12}, 1);
  const AttributeMsg heads = Int("num_heads", 2);
  EXPECT_EQ(Refusal({"", "Gelu", kContrib, {x}, {Int("depth", 1)}, {x}}),
            "com.microsoft.Gelu: attribute \"depth\" is not supported");
  EXPECT_EQ(Refusal({"", "BiasGelu", kContrib, {x}, {}, {x}}),
            "com.microsoft.BiasGelu: it has 1 inputs");
  EXPECT_EQ(
      Refusal({"", "FusedGemm", kContrib, {w, Ramp({12, 4}, 1)}, {Str("activation", "Mish")}, {x}}),
      "com.microsoft.FusedGemm: activation \"Mish\" is not supported");
  EXPECT_EQ(
      Refusal({"", "FusedGemm", kContrib, {w, Ramp({12, 4}, 1)}, {Str("activation", "Elu")}, {x}}),
      "com.microsoft.FusedGemm: activation Elu lacks its parameter 'alpha'");
  EXPECT_EQ(Refusal({"", "Attention", kContrib, {x, w}, {heads, Int("do_rotary", 1)}, {x}}),
            "com.microsoft.Attention: 'do_rotary' is not supported");
  EXPECT_EQ(Refusal({"", "Attention", kContrib, {x, w, {}, Ramp({1, 1, 2, 2}, 3)}, {heads}, {x}}),
            "com.microsoft.Attention: a mask of rank 4");
  EXPECT_EQ(Refusal({"", "Attention", kContrib, {x, w, {}, Ramp({1}, 3)}, {heads}, {x}}, true),
            "com.microsoft.Attention: a mask of 1 lengths for batch rows");
  EXPECT_EQ(Refusal({"",
                     "MultiHeadAttention",
                     kContrib,
                     {x, Ramp({1, 3, 4}, 1), Ramp({1, 3, 4}, 2)},
                     {heads, Int("unidirectional", 1)},
                     {x}}),
            "com.microsoft.MultiHeadAttention: 'unidirectional' needs as many new keys as queries");
  EXPECT_EQ(Refusal({"", "MultiHeadAttention", kContrib, {x, x, x}, {heads}, {x, {}, {}, x}}),
            "com.microsoft.MultiHeadAttention: output 'qk' is not supported");
  EXPECT_EQ(
      Refusal({"", "SkipSimplifiedLayerNormalization", kContrib, {x, x, Ramp({4}, 2)}, {}, {x, x}}),
      "com.microsoft.SkipSimplifiedLayerNormalization: outputs 'mean' and 'inv_std_var'");
}

// A model that brings the operator as a function of its own means that one.
TEST(Contrib, FunctionsOfTheModelComeFirst) {
  ModelMsg model = ModelOf({"", "Gelu", kContrib, {Ramp({2}, 0)}, {}, {Ramp({2}, 0)}});
  FunctionMsg f;
  f.name = "Gelu";
  f.domain = kContrib;
  f.inputs = {"a"};
  f.outputs = {"b"};
  f.nodes = {Node("Neg", {"a"}, {"b"})};
  f.opsets = {{Text(), 17}};
  model.functions = {f};
  Loaded loaded;
  Program program = Import(loaded.context, model);
  EXPECT_EQ(RunProgram(program, {{"i0", F32({2}, {1, -2})}})[0].second, RtValue(F32({2}, {-1, 2})));
}

}  // namespace
}  // namespace lathe::onnx
