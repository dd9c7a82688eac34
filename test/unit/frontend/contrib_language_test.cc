#include <gtest/gtest.h>

#include "lathe/ir/text_format.h"
#include "test/unit/frontend/contrib_case.h"

/// Operators of com.microsoft that language models have.
namespace lathe::onnx {
namespace {

std::vector<Case> GatherCases() {
  return {
      {"gather_4_bits",
       "GatherBlockQuantized",
       kContrib,
       {Bytes({4, 8}, 0, ElementType::kU8), Tensor::Of<int64_t>({1, 3}, {2, 0, -1}),
        Ramp({4, 1}, 1)},
       {Int("bits", 4), Int("block_size", 16), Int("quantize_axis", 1), Int("gather_axis", 0)},
       {F32({1, 3, 16},
            {1.25F, -1.875F, 4.375F, -0.625F, -2.5F,  1.25F,  0.625F, 2.5F,  3.75F, 3.75F,
             0,     -4.375F, 3.125F, -3.125F, -3.75F, -1.25F, 0,      0,     0,     0,
             0,     0,       0,      0,       0,      0,      0,      0,     0,     0,
             0,     0,       0.5F,   0,       -2,     -1,     3.5F,   -2.5F, 1,     -3.5F,
             4,     3,       1.5F,   2,       -1,     1,      -3.5F,  0})}},
      {"gather_2_bits_zero",
       "GatherBlockQuantized",
       kContrib,
       {Bytes({4, 5}, 0, ElementType::kU8), Tensor::Scalar<int32_t>(3), Ramp({4, 2}, 1),
        Bytes({4, 1}, 5, ElementType::kU8)},
       {Int("bits", 2), Int("block_size", 16)},
       {F32({20}, {1, 1, -1, 2, 0, 0, 1, 1, -1, -1, -1, 1, 2, 1, 0, 0, 0, 0.75F, -0.75F, 1.5F})}},
      {"gather_8_bits_zero",
       "GatherBlockQuantized",
       kContrib,
       {Bytes({3, 16}, 0, ElementType::kU8), Tensor::Of<int64_t>({1}, {1}), Ramp({3, 1}, 1),
        Bytes({3, 1}, 5, ElementType::kU8)},
       {Int("bits", 8), Int("block_size", 16)},
       {F32({1, 16}, {2.25F, -39.375F, -81, -122.625F, -164.25F, 76.5F, 34.875F, -6.75F, -48.375F,
                      -90, -131.625F, -173.25F, 67.5F, 25.875F, -15.75F, -57.375F})}},
      {"gather_outside",
       "GatherBlockQuantized",
       kContrib,
       {Bytes({2, 8}, 0, ElementType::kU8), Tensor::Of<int64_t>({2}, {2, -3}), Ramp({2, 1}, 1)},
       {Int("bits", 4), Int("block_size", 16)},
       {F32({2, 16}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                      0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})}}};
}

std::vector<Case> BlockProductCases() {
  return {
      {"two_bits",
       "MatMulNBits",
       kContrib,
       {Ramp({2, 32}, 0), Bytes({3, 2, 4}, 1, ElementType::kU8), Ramp({3, 2}, 2)},
       {Int("K", 32), Int("N", 3), Int("bits", 2), Int("block_size", 16)},
       {F32({2, 3}, {2.953125F, -4.484375F, 1.6875F, -9.921875F, 1.96875F, -4.484375F})}},
      {"two_bits_zero",
       "MatMulNBits",
       kContrib,
       {Ramp({1, 40}, 0),
        Bytes({2, 3, 4}, 1, ElementType::kU8),
        Ramp({2, 3}, 2),
        Bytes({2, 1}, 3, ElementType::kU8),
        {},
        Ramp({2}, 4)},
       {Int("K", 40), Int("N", 2), Int("bits", 2), Int("block_size", 16)},
       {F32({1, 2}, {1.453125F, 6.65625F})}},
      {"two_bits_real_zero",
       "MatMulNBits",
       kContrib,
       {Ramp({1, 32}, 0), Bytes({2, 2, 4}, 1, ElementType::kU8), Ramp({2, 2}, 2), Ramp({2, 2}, 3)},
       {Int("K", 32), Int("N", 2), Int("bits", 2), Int("block_size", 16)},
       {F32({1, 2}, {-1.652344F, -0.7519531F})}},
      {"columns_in_groups",
       "MatMulNBits",
       kContrib,
       {Ramp({2, 20}, 0),
        Bytes({2, 2, 8}, 1, ElementType::kU8),
        Ramp({2, 2}, 2),
        {},
        Tensor::Of<int32_t>({20}, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1})},
       {Int("K", 20), Int("N", 2), Int("bits", 4), Int("block_size", 16)},
       {F32({2, 2}, {33.01562F, -12.25F, -19.14062F, 1.3125F})}},
      {"float_4",
       "MatMulBnb4",
       kContrib,
       {Ramp({2, 10}, 0), Bytes({15}, 1, ElementType::kU8), Ramp({2}, 2)},
       {Int("K", 10), Int("N", 3), Int("block_size", 16), Int("quant_type", 0)},
       {F32({2, 3}, {-1.755453F, -0.4872233F, 0.3339843F, -1.64266F, -0.138265F, 0.2304688F})}},
      {"normal_float_4",
       "MatMulBnb4",
       kContrib,
       {Ramp({2, 9}, 0), Bytes({14}, 1, ElementType::kU8), Ramp({2}, 2)},
       {Int("K", 9), Int("N", 3), Int("block_size", 16), Int("quant_type", 1)},
       {F32({2, 3}, {1.483895F, 0.6055154F, 0.2298584F, -0.3531085F, -0.8047531F, -0.1245517F})}}};
}

std::vector<Case> GroupQueryCases() {
  return {
      {"attention_bias",
       "GroupQueryAttention",
       kContrib,
       {Ramp({1, 2, 16}, 0),
        Ramp({1, 2, 8}, 1),
        Ramp({1, 2, 8}, 2),
        {},
        {},
        Tensor::Of<int32_t>({1}, {1}),
        Tensor::Scalar<int32_t>(2),
        {},
        {},
        {},
        Ramp({1, 2, 2, 2}, 3)},
       {Int("num_heads", 2), Int("kv_num_heads", 1), Float("softcap", 2)},
       {F32({1, 2, 16},
            {1.375F,      0.25F,      -0.875F,    0.875F,    -0.25F,       -1.375F,    0.375F,
             -0.75F,      1.375F,     0.25F,      -0.875F,   0.875F,       -0.25F,     -1.375F,
             0.375F,      -0.75F,     1.308533F,  0.183533F, -0.941467F,   0.808533F,  -0.316467F,
             -0.9318869F, 0.308533F,  -0.816467F, 1.10322F,  -0.02178054F, -1.146781F, 0.6032195F,
             -0.5217806F, 0.4368703F, 0.1032195F, -1.021781F})}},
      {"smooth",
       "GroupQueryAttention",
       kContrib,
       {Ramp({1, 2, 16}, 0),
        Ramp({1, 2, 8}, 1),
        Ramp({1, 2, 8}, 2),
        {},
        {},
        Tensor::Of<int32_t>({1}, {1}),
        Tensor::Scalar<int32_t>(2)},
       {Int("num_heads", 2), Int("kv_num_heads", 1), Int("smooth_softmax", 1)},
       {F32({1, 2, 16},
            {0.3849477F,   0.06999049F, -0.2449667F, 0.2449667F,  -0.06999049F, -0.3849477F,
             0.1049857F,   -0.2099715F, 0.4163021F,  0.07569128F, -0.2649195F,  0.2649195F,
             -0.07569128F, -0.4163021F, 0.1135369F,  -0.2270738F, 0.7005838F,   0.05838715F,
             -0.5838095F,  0.4151631F,  -0.2270336F, -0.2227522F, 0.1297423F,   -0.5124543F,
             0.895375F,    0.09490307F, -0.7055689F, 0.5396097F,  -0.2608622F,  -0.4251573F,
             0.1838444F,   -0.6166276F})}},
      {"head_sink",
       "GroupQueryAttention",
       kContrib,
       {Ramp({1, 1, 16}, 0),
        Ramp({1, 1, 8}, 1),
        Ramp({1, 1, 8}, 2),
        Ramp({1, 1, 2, 8}, 3),
        Ramp({1, 1, 2, 8}, 4),
        Tensor::Of<int32_t>({1}, {2}),
        Tensor::Scalar<int32_t>(3),
        {},
        {},
        {},
        {},
        Ramp({2}, 6)},
       {Int("num_heads", 2), Int("kv_num_heads", 1)},
       {F32({1, 1, 16}, {0.4341208F, -0.0379182F, -0.5099571F, 0.2243257F, -0.2477133F, 0.2759325F,
                         0.01453057F, -0.4575084F, 0.6591871F, 0.02112811F, -0.6169308F, 0.3756053F,
                         -0.2624537F, 0.189716F, 0.09202355F, -0.5460355F}),
        F32({1, 1, 3, 8}, {-0.125F, -1.25F,  0.5F,   -0.625F, 1.125F, 0,       -1.125F, 0.625F,
                           -0.5F,   1.25F,   0.125F, -1,      0.75F,  -0.375F, 1.375F,  0.25F,
                           0,       -1.125F, 0.625F, -0.5F,   1.25F,  0.125F,  -1,      0.75F}),
        F32({1, 1, 3, 8}, {1.25F,  0.125F, -1,      0.75F,  -0.375F, 1.375F,  0.25F,   -0.875F,
                           0.875F, -0.25F, -1.375F, 0.375F, -0.75F,  1,       -0.125F, -1.25F,
                           1.375F, 0.25F,  -0.875F, 0.875F, -0.25F,  -1.375F, 0.375F,  -0.75F})}},
      {"not_causal",
       "GroupQueryAttention",
       kContrib,
       {Ramp({1, 2, 16}, 0),
        Ramp({1, 2, 8}, 1),
        Ramp({1, 2, 8}, 2),
        {},
        {},
        Tensor::Of<int32_t>({1}, {1}),
        Tensor::Scalar<int32_t>(2)},
       {Int("num_heads", 2), Int("kv_num_heads", 1), Int("causal", 0)},
       {F32({1, 2, 16},
            {1.126141F,   0.001141056F, -1.123859F,  0.6261411F,  -0.498859F,  0.2840596F,
             0.1261411F,  -0.998859F,   1.193713F,   0.06871253F, -1.056288F,  0.6937125F,
             -0.4312875F, -0.1664169F,  0.1937125F,  -0.9312875F, 1.227283F,   0.1022826F,
             -1.022717F,  0.7272826F,   -0.3977174F, -0.3902173F, 0.2272826F,  -0.8977174F,
             1.258379F,   0.1333788F,   -0.9916213F, 0.7583787F,  -0.3666213F, -0.597525F,
             0.2583787F,  -0.8666213F})}}};
}

std::vector<Case> WindowCases() {
  return {
      {"window_prompt",
       "GroupQueryAttention",
       kContrib,
       {Ramp({1, 4, 16}, 0), Ramp({1, 4, 8}, 1), Ramp({1, 4, 8}, 2), Ramp({1, 1, 3, 8}, 3),
        Ramp({1, 1, 3, 8}, 4), Tensor::Of<int32_t>({1}, {3}), Tensor::Scalar<int32_t>(4)},
       {Int("num_heads", 2), Int("kv_num_heads", 1), Int("local_window_size", 3),
        Int("sliding_window_cache", 1)},
       {F32({1, 4, 16},
            {1.375F,      0.25F,       -0.875F,     0.875F,      -0.25F,      -1.375F,
             0.375F,      -0.75F,      1.375F,      0.25F,       -0.875F,     0.875F,
             -0.25F,      -1.375F,     0.375F,      -0.75F,      1.227283F,   0.1022826F,
             -1.022717F,  0.7272826F,  -0.3977174F, -0.3902173F, 0.2272826F,  -0.8977174F,
             1.258379F,   0.1333788F,  -0.9916213F, 0.7583788F,  -0.3666213F, -0.597525F,
             0.2583787F,  -0.8666213F, 1.233795F,   0.1087947F,  -0.7911189F, 0.7337948F,
             -0.3912053F, -0.658718F,  0.2337947F,  -0.6661188F, 0.9999999F,  -0.125F,
             -0.774451F,  0.5F,        -0.625F,     0.6494509F,  0,           -0.649451F,
             0.6315902F,  -0.4934098F, 0.6929316F,  0.1315902F,  -0.9934098F, 0.7565903F,
             -0.3684098F, 0.8179316F,  0.3889693F,  -0.7360307F, 0.7612302F,  -0.1110307F,
             -1.236031F,  0.5139693F,  -0.6110308F, 0.8862302F}),
        F32({1, 1, 3, 8}, {-0.375F, 1.375F, 0.25F,   -0.875F, 0.875F, -0.25F,  -1.375F, 0.375F,
                           -0.75F,  1,      -0.125F, -1.25F,  0.5F,   -0.625F, 1.125F,  0,
                           -1.125F, 0.625F, -0.5F,   1.25F,   0.125F, -1,      0.75F,   -0.375F}),
        F32({1, 1, 3, 8}, {1,      -0.125F, -1.25F, 0.5F,   -0.625F, 1.125F, 0,       -1.125F,
                           0.625F, -0.5F,   1.25F,  0.125F, -1,      0.75F,  -0.375F, 1.375F,
                           0.25F,  -0.875F, 0.875F, -0.25F, -1.375F, 0.375F, -0.75F,  1})}},
      {"window_full",
       "GroupQueryAttention",
       kContrib,
       {Ramp({1, 1, 16}, 0), Ramp({1, 1, 8}, 1), Ramp({1, 1, 8}, 2), Ramp({1, 1, 3, 8}, 3),
        Ramp({1, 1, 3, 8}, 4), Tensor::Of<int32_t>({1}, {7}), Tensor::Scalar<int32_t>(8)},
       {Int("num_heads", 2), Int("kv_num_heads", 1), Int("local_window_size", 3),
        Int("sliding_window_cache", 1)},
       {F32({1, 1, 16}, {0.7349976F, -0.3900024F, -0.03831329F, 0.2349976F, -0.8900024F, 0.5574944F,
                         -0.2650024F, 0.08668671F, 0.9198898F, -0.2051102F, -0.4016559F, 0.4198898F,
                         -0.7051103F, 0.09043279F, -0.08011022F, -0.2766559F}),
        F32({1, 1, 3, 8}, {-0.5F,   1.25F,   0.125F, -1,      0.75F,  -0.375F, 1.375F, 0.25F,
                           -0.875F, 0.875F,  -0.25F, -1.375F, 0.375F, -0.75F,  1,      -0.125F,
                           0,       -1.125F, 0.625F, -0.5F,   1.25F,  0.125F,  -1,     0.75F}),
        F32({1, 1, 3, 8}, {0.875F, -0.25F,  -1.375F, 0.375F, -0.75F,  1,       -0.125F, -1.25F,
                           0.5F,   -0.625F, 1.125F,  0,      -1.125F, 0.625F,  -0.5F,   1.25F,
                           1.375F, 0.25F,   -0.875F, 0.875F, -0.25F,  -1.375F, 0.375F,  -0.75F})}},
      {"window_chunk",
       "GroupQueryAttention",
       kContrib,
       {Ramp({1, 2, 16}, 0), Ramp({1, 2, 8}, 1), Ramp({1, 2, 8}, 2), Ramp({1, 1, 3, 8}, 3),
        Ramp({1, 1, 3, 8}, 4), Tensor::Of<int32_t>({1}, {6}), Tensor::Scalar<int32_t>(7)},
       {Int("num_heads", 2), Int("kv_num_heads", 1), Int("local_window_size", 2),
        Int("sliding_window_cache", 1)},
       {F32({1, 2, 16},
            {0.6487699F,  -0.4762301F, 0.7849545F,   0.1487699F,  -0.97623F,   0.2849545F,
             -0.3512301F, 0.9099545F,  0.9435418F,   -0.1814582F, 0.1111902F,  0.4435418F,
             -0.6814582F, -0.3888098F, -0.05645821F, 0.2361902F,  1.227283F,   0.1022826F,
             -1.022717F,  0.7272826F,  -0.3977174F,  -0.3902173F, 0.2272826F,  -0.8977174F,
             1.258379F,   0.1333788F,  -0.9916213F,  0.7583788F,  -0.3666213F, -0.597525F,
             0.2583787F,  -0.8666213F}),
        F32({1, 1, 3, 8}, {-0.875F, 0.875F,  -0.25F, -1.375F, 0.375F, -0.75F, 1,       -0.125F,
                           0,       -1.125F, 0.625F, -0.5F,   1.25F,  0.125F, -1,      0.75F,
                           -0.375F, 1.375F,  0.25F,  -0.875F, 0.875F, -0.25F, -1.375F, 0.375F}),
        F32({1, 1, 3, 8}, {0.5F,   -0.625F, 1.125F,  0,      -1.125F, 0.625F,  -0.5F,  1.25F,
                           1.375F, 0.25F,   -0.875F, 0.875F, -0.25F,  -1.375F, 0.375F, -0.75F,
                           1,      -0.125F, -1.25F,  0.5F,   -0.625F, 1.125F,  0,      -1.125F})}}};
}

std::vector<Case> StateCases() {
  return {
      {"causal_conv",
       "CausalConvWithState",
       kContrib,
       {Ramp({1, 2, 3}, 0), Ramp({2, 1, 3}, 1), Ramp({2}, 2), Ramp({1, 2, 2}, 3)},
       {Str("activation", "silu")},
       {F32({1, 2, 3}, {1.676543F, 3.027331F, 0.2997217F, -0.2241635F, 1.541302F, -0.2041702F}),
        F32({1, 2, 2}, {0.375F, -0.75F, -0.125F, -1.25F})}},
      {"causal_conv_short",
       "CausalConvWithState",
       kContrib,
       {Ramp({1, 2, 1}, 0), Ramp({2, 1, 3}, 1)},
       {Int("dilation", 2)},
       {F32({1, 2, 1}, {-0.859375F, 0.046875F}),
        F32({1, 2, 4}, {0, 0, 0, -1.375F, 0, 0, 0, 0.375F})}},
      {"causal_conv_last",
       "CausalConvWithState",
       kContrib,
       {Ramp({1, 2, 2}, 0), Ramp({2, 1, 2}, 1), {}, Ramp({1, 1, 2}, 3)},
       {Int("channels_last", 1)},
       {F32({1, 2, 2}, {1.546875F, -0.96875F, 0.84375F, -0.265625F}), F32({1, 1, 2}, {-0.75F, 1})}},
      {"linear_attention",
       "LinearAttention",
       kContrib,
       {Ramp({1, 2, 4}, 0), Ramp({1, 2, 4}, 1), Ramp({1, 2, 6}, 2), Ramp({1, 2, 2, 3}, 3),
        F32({1, 2, 2}, {-1, -0.5F, -0.25F, -2}), F32({1, 2, 2}, {0.5F, 0.25F, 0.75F, 0.5F})},
       {Int("q_num_heads", 2), Int("kv_num_heads", 2)},
       {F32({1, 2, 6},
            {-0.1827654F, 0.4501058F, -0.04832849F, 0.6101736F, -0.07053276F, -0.01310354F,
             0.5102843F, 0.0741365F, -0.4795797F, 0.02845811F, 0.4252883F, -0.1615235F}),
        F32({1, 2, 2, 3},
            {0.4360114F, -0.6426063F, 0.8679587F, -0.6209219F, -0.01961526F, 0.4557866F,
             0.06191195F, 0.6526003F, -0.3075993F, -0.01486379F, -0.4402375F, 0.1194066F})}},
      {"linear_attention_few",
       "LinearAttention",
       kContrib,
       {Ramp({1, 2, 4}, 0), Ramp({1, 2, 4}, 1), Ramp({1, 2, 12}, 2)},
       {Int("q_num_heads", 2), Int("kv_num_heads", 4), Str("update_rule", "linear")},
       {F32({1, 2, 12}, {-0.4101772F, -0.07457767F, 0.2610218F,  -0.2610218F, 0.07457767F,
                         0.4101772F,  -0.2568786F,  0.5137573F,  -0.6850097F, 0.08562621F,
                         0.8562621F,  -0.3425048F,  1.505364F,   0,           -0.8700728F,
                         1.118665F,   -0.386699F,   -1.256772F,  -0.6905339F, -0.4170825F,
                         1.126951F,   -0.569F,      -0.2955485F, -0.7209175F}),
        F32({1, 4, 2, 3}, {-0.78125F,  1.40625F,  0,        -1.625F, -0.140625F, 0.984375F,
                           -1.40625F,  0.78125F,  -0.625F,  -1.125F, 0.359375F,  1.484375F,
                           -1.015625F, -0.59375F, 1.625F,   0.75F,   0.46875F,   -1.25F,
                           -0.828125F, -0.40625F, -1.0625F, 0.625F,  0.34375F,   0.78125F})}},
      {"gate",
       "LinearAttentionGate",
       kContrib,
       {Ramp({1, 2, 2}, 0), Ramp({2}, 1), Ramp({2}, 2), Ramp({1, 2, 2}, 3)},
       {},
       {F32({1, 2, 2}, {0.3099424F, 0.09671775F, 0.5319476F, 0.1581497F}),
        F32({1, 2, 2}, {0.4687906F, 0.2227001F, 0.6224593F, 0.3486452F})}},
      {"gated_norm",
       "GatedRMSNorm",
       kContrib,
       {Ramp({1, 2, 6}, 0), Ramp({3}, 1), Ramp({1, 2, 6}, 2)},
       {},
       {F32({1, 2, 6}, {0, -0.0637662F, 0.1297801F, 0, -0.01660381F, 0.233856F, 0, -0.2122386F,
                        0.6448401F, 0, -0.4741647F, 0.1636194F})}},
      {"gated_norm_sigmoid",
       "GatedRMSNorm",
       kContrib,
       {Ramp({2, 3}, 0), Ramp({3}, 1), Ramp({2, 3}, 2)},
       {Str("activation", "sigmoid"), Float("epsilon", 0.5F)},
       {F32({2, 3}, {0, -0.2030282F, -0.1180609F, 0, 0.05280706F, -0.1352291F})}}};
}

std::vector<Case> ExpertCases() {
  return {
      {"experts",
       "MoE",
       kContrib,
       {Ramp({3, 4}, 0), Ramp({3, 3}, 1), Ramp({3, 2, 4}, 2), Ramp({3, 2}, 3), Ramp({3, 4, 2}, 4),
        Ramp({3, 4}, 5)},
       {Int("k", 2), Str("activation_type", "gelu")},
       {F32({3, 4}, {-1.758554F, 0.1543381F, 1.448937F, 1.572432F, 0.7179562F, 0.7885336F,
                     -1.394531F, -0.04117364F, 2.516563F, -2.83341F, -2.608193F, -0.1668986F})}},
      {"experts_gated",
       "MoE",
       kContrib,
       {Ramp({3, 4}, 0), Ramp({3, 3}, 1), Ramp({3, 4, 4}, 2), {}, Ramp({3, 4, 2}, 4)},
       {Int("k", 1), Str("activation_type", "swiglu"), Int("swiglu_fusion", 1),
        Int("normalize_routing_weights", 1), Float("activation_alpha", 1.5F),
        Float("activation_beta", 1), Float("swiglu_limit", 2)},
       {F32({3, 4}, {-0.05527368F, -0.1682131F, 0.1487254F, 0.03578598F, -0.575435F, 0.9123596F,
                     0.1366276F, 0.6657363F, -0.1351565F, 0.2154448F, -0.01861253F, 0.2393352F})}},
      {"experts_4_bits",
       "QMoE",
       kContrib,
       {Ramp({2, 16}, 0),
        Ramp({2, 3}, 1),
        Bytes({3, 16, 8}, 2, ElementType::kU8),
        Ramp({3, 16, 1}, 3),
        {},
        Bytes({3, 16, 8}, 4, ElementType::kU8),
        Ramp({3, 16, 1}, 5)},
       {Int("k", 2), Str("activation_type", "silu"), Int("block_size", 16)},
       {F32({2, 16},
            {-110.4913F, 82.689F,    89.74667F,  -2.852549F, -66.5181F,  -200.4346F, 16.62838F,
             53.21352F,  7.486652F,  49.24636F,  -405.8691F, 15.56201F,  111.6813F,  -26.11523F,
             -41.87798F, -193.8356F, -93.95975F, 40.04456F,  -33.91299F, 51.61626F,  -10.84328F,
             155.4638F,  -125.6999F, -88.01035F, 399.3446F,  84.97433F,  -80.23879F, -45.87643F,
             52.58953F,  18.03461F,  -66.26929F, 110.2343F})}},
      {"experts_rows",
       "QMoE",
       kContrib,
       {Ramp({1, 4}, 0),
        Ramp({1, 2}, 1),
        Bytes({2, 4, 2}, 2, ElementType::kU8),
        Ramp({2, 4}, 3),
        {},
        Bytes({2, 4, 2}, 4, ElementType::kU8),
        Ramp({2, 4}, 5),
        {},
        {},
        {},
        {},
        Bytes({2, 2}, 6, ElementType::kU8),
        Bytes({2, 2}, 7, ElementType::kU8)},
       {Int("k", 1), Str("activation_type", "relu")},
       {F32({1, 4}, {6.457031F, -24.94336F, 12.62109F, 0.421875F})}}};
}

std::vector<Case> QuantizedAttentionCases() {
  return {
      {"embed_bytes",
       "QEmbedLayerNormalization",
       kContrib,
       {Tensor::Of<int32_t>({1, 2}, {1, 2}), Tensor::Of<int32_t>({1, 2}, {0, 1}),
        Bytes({3, 4}, 0, ElementType::kU8), Bytes({3, 4}, 1, ElementType::kU8),
        Bytes({2, 4}, 2, ElementType::kU8), Bytes({4}, 3, ElementType::kU8),
        Bytes({4}, 4, ElementType::kU8), Tensor::Of<int32_t>({1, 2}, {1, 0}), F32({}, {0.0625F}),
        F32({}, {0.03125F}), F32({}, {0.125F}), F32({}, {0.015625F}), F32({}, {0.03125F}),
        Tensor::Scalar<uint8_t>(100), Tensor::Scalar<uint8_t>(90), Tensor::Scalar<uint8_t>(3),
        Tensor::Scalar<uint8_t>(0), Tensor::Scalar<uint8_t>(128)},
       {},
       {F32({1, 2, 4}, {-3.364936F, -1.492622F, 2.013709F, 0.9910723F, -2.729752F, -0.9210525F,
                        1.701539F, -2.536326F}),
        Tensor::Of<int32_t>({1}, {1})}},
      {"attention_bytes",
       "QAttention",
       kContrib,
       {Bytes({1, 3, 4}, 0, ElementType::kU8), Bytes({4, 12}, 1, ElementType::kI8), Ramp({12}, 2),
        F32({}, {0.0625F}), F32({}, {0.03125F}), Tensor::Of<int32_t>({1}, {2}),
        Tensor::Scalar<uint8_t>(120), Tensor::Scalar<int8_t>(3)},
       {Int("num_heads", 2)},
       {F32({1, 3, 4}, {-7.488281F, 13.43164F, -48.24219F, -40.49414F, -7.488281F, 13.43164F,
                        16.21289F, -0.6816406F, -7.488281F, 13.43164F, -48.24219F, -40.49414F})}},
      {"attention_bytes_past",
       "QAttention",
       kContrib,
       {Bytes({1, 2, 4}, 0, ElementType::kU8),
        Bytes({4, 12}, 1, ElementType::kU8),
        Ramp({12}, 2),
        F32({}, {0.0625F}),
        F32({}, {0.03125F}),
        {},
        Tensor::Scalar<uint8_t>(120),
        Tensor::Scalar<uint8_t>(3),
        Ramp({2, 1, 2, 1, 2}, 4)},
       {Int("num_heads", 2), Int("unidirectional", 1)},
       {F32({1, 2, 4}, {-70.47656F, -49.55664F, -46.77539F, -63.66992F, 44.14453F, 17.15234F,
                        -46.77539F, -63.66992F}),
        F32({2, 1, 2, 3, 2}, {1.25F,   0.125F,  -60.38867F, -75.74609F, -22.27734F, 37.50195F,
                              -1,      0.75F,   -92.64062F, -53.58203F, 45.25F,     36.39648F,
                              -0.375F, 1.375F,  -70.47656F, -49.55664F, 44.14453F,  17.15234F,
                              0.25F,   -0.875F, -46.77539F, -63.66992F, -27.97852F, -20.23047F})}}};
}

std::vector<Case> EarlierCases() {
  return {{"expand_dims",
           "ExpandDims",
           kContrib,
           {Ramp({2}, 0), Tensor::Scalar<int32_t>(-1)},
           {},
           {F32({2, 1}, {-1.375F, 0.375F})}},
          {"gather_nd",
           "GatherND",
           kContrib,
           {Ramp({2, 3}, 0), Tensor::Of<int32_t>({2, 1}, {1, 0})},
           {},
           {F32({2, 3}, {1, -0.125F, -1.25F, -1.375F, 0.375F, -0.75F})}},
          {"pad",
           "Pad",
           kContrib,
           {Ramp({2, 2}, 0), Tensor::Of<int64_t>({1, 4}, {0, 1, 1, 0}), F32({1}, {0.5F})},
           {},
           {F32({3, 3}, {0.5F, -1.375F, 0.375F, 0.5F, -0.75F, 1, 0.5F, 0.5F, 0.5F})}},
          {"pad_edge",
           "Pad",
           kContrib,
           {Ramp({2, 2}, 0), Tensor::Of<int64_t>({4}, {0, 1, 1, 0})},
           {Str("mode", "edge")},
           {F32({3, 3}, {-1.375F, -1.375F, 0.375F, -0.75F, -0.75F, 1, -0.75F, -0.75F, 1})}},
          {"range", "Range", kContrib, {F32({1}, {1}), F32({1}, {4})}, {}, {F32({3}, {1, 2, 3})}},
          {"trilu",
           "Trilu",
           kContrib,
           {Ramp({3, 3}, 0), Tensor::Scalar<int64_t>(1)},
           {Int("upper", 0)},
           {F32({3, 3}, {-1.375F, 0.375F, 0, 1, -0.125F, -1.25F, 0.5F, -0.625F, 1.125F})}},
          {"distances",
           "CDist",
           kContrib,
           {Ramp({2, 3}, 0), Ramp({3, 3}, 1)},
           {Str("metric", "euclidean")},
           {F32({2, 3}, {2.45586F, 1.515544F, 0.649519F, 2.348537F, 2.45586F, 2.351861F})}}};
}

TEST(ContribLanguage, AgreesWithOnnxruntime) {
  Check(EarlierCases());
  Check(GatherCases());
  Check(BlockProductCases());
  Check(GroupQueryCases());
  Check(WindowCases());
  Check(StateCases());
  Check(ExpertCases());
  Check(QuantizedAttentionCases());
}

// As before the first token, where nobody knows how long it is to be.
TEST(ContribLanguage, BuffersOfAWindowBecomeAsLongAsIt) {
  Case c = WindowCases()[0];
  for (const size_t i : {3, 4}) c.inputs[i] = F32({1, 1, 0, 8}, {});
  Check({c});
}

// What a file leaves open of the past follows from the queries.
TEST(ContribLanguage, HeadsOfThePastHaveTheirSize) {
  const Case c = WindowCases()[1];
  ModelMsg model = ModelOf(c);
  for (const size_t i : {3, 4}) model.graph.inputs[i].type.dims[3] = {false, 0, "width"};
  Loaded loaded;
  const std::string text = Print(Import(loaded.context, model));
  EXPECT_NE(text.find("{name = \"o1\"} : (v_tensor<[1, 1, 3, 8], f32>)"), std::string::npos)
      << text;
}

TEST(ContribLanguage, AListForThePastIsAnError) {
  ModelMsg model = ModelOf(WindowCases()[1]);
  TypeMsg& type = model.graph.inputs[3].type;
  const TypeMsg element = type;
  type = {};
  type.kind = TypeMsg::kSequence;
  type.inner = std::make_shared<TypeMsg>(element);
  Loaded loaded;
  EXPECT_NE(Caught([&] { Import(loaded.context, model); }).code(), ErrorCode::kInternal);
}

// Eight times so many bytes are none at all, as a 64-bit integer has it.
TEST(ContribLanguage, SizesBeyondAllMemoryAreRefused) {
  Case c = ExpertCases()[2];
  std::erase_if(c.attributes, [](const AttributeMsg& a) { return a.name == "block_size"; });
  ModelMsg model = ModelOf(c);
  model.graph.inputs[2].type.dims[2] = {true, int64_t{1} << 62, {}};
  Loaded loaded;
  EXPECT_EQ(Caught([&] { Import(loaded.context, model); }).message(),
            "com.microsoft.QMoE: input 2 has size 4611686018427387904 on axis 2");
}

TEST(ContribLanguage, ExpertsWithoutColumnsAreRefused) {
  Case c = ExpertCases()[2];
  std::erase_if(c.attributes, [](const AttributeMsg& a) { return a.name == "block_size"; });
  ModelMsg model = ModelOf(c);
  model.graph.inputs.erase(model.graph.inputs.begin() + 2);
  const Tensor none(ElementType::kU8, {3, 16, 0});
  model.graph.initializers.push_back(EncodeTensor(none, kInputs[2]));
  Loaded loaded;
  EXPECT_EQ(Caught([&] { Import(loaded.context, model); }).message(),
            "com.microsoft.QMoE: weights of no columns");
}

TEST(ContribLanguage, NumbersOfHeadsAndDilationsAreBounded) {
  const Tensor x = Ramp({1, 2, 16}, 0), last = Tensor::Of<int32_t>({1}, {1});
  const Tensor total = Tensor::Scalar<int32_t>(2);
  constexpr int64_t kMany = int64_t{1} << 62;
  EXPECT_EQ(Refusal({"",
                     "GroupQueryAttention",
                     kContrib,
                     {x, {}, {}, {}, {}, last, total},
                     {Int("num_heads", kMany), Int("kv_num_heads", kMany)},
                     {x}}),
            "com.microsoft.GroupQueryAttention: 'kv_num_heads' does not divide 'num_heads'");
  EXPECT_EQ(Refusal({"",
                     "LinearAttention",
                     kContrib,
                     {x, x, x},
                     {Int("q_num_heads", 1), Int("kv_num_heads", kMany)},
                     {x}}),
            "com.microsoft.LinearAttention: the numbers of heads are missing or too large");
  constexpr int64_t kLarge = int64_t{1} << 31;
  EXPECT_EQ(Refusal({"",
                     "MatMulBnb4",
                     kContrib,
                     {x, Bytes({8}, 1, ElementType::kU8), x},
                     {Int("N", kLarge), Int("K", kLarge), Int("block_size", 16)},
                     {x}}),
            "com.microsoft.MatMulBnb4: 'N', 'K' and 'block_size' must be positive");
  for (const int64_t dilation : {INT64_MIN, int64_t{0}, kMany}) {
    EXPECT_EQ(Refusal({"",
                       "CausalConvWithState",
                       kContrib,
                       {x, Ramp({2, 1, 3}, 1)},
                       {Int("dilation", dilation)},
                       {x, x}}),
              StrCat("com.microsoft.CausalConvWithState: 'dilation' is ", dilation));
  }
}

TEST(ContribLanguage, WhatIsNotSupportedIsNamed) {
  const Tensor x = Ramp({1, 2, 16}, 0), k = Ramp({1, 2, 8}, 1), past = Ramp({1, 1, 2, 8}, 2);
  const Tensor last = Tensor::Of<int32_t>({1}, {1}), total = Tensor::Scalar<int32_t>(2);
  const AttributeMsg heads = Int("num_heads", 2), shared = Int("kv_num_heads", 1);
  const AttributeMsg windowed = Int("sliding_window_cache", 1);
  EXPECT_EQ(
      Refusal({"",
               "GroupQueryAttention",
               kContrib,
               {x, k, k, past, past, last, total},
               {heads, shared, windowed},
               {x}}),
      "com.microsoft.GroupQueryAttention: 'sliding_window_cache' needs a window and past keys");
  EXPECT_EQ(Refusal({"",
                     "GroupQueryAttention",
                     kContrib,
                     {x, k, k, {}, {}, last, total},
                     {heads, shared, Str("k_quant_type", "PER_TENSOR")},
                     {x}}),
            "com.microsoft.GroupQueryAttention: 'k_quant_type' is not supported");
  EXPECT_EQ(Refusal({"", "MatMulNBits", kContrib, {x, x, x}, {Int("bits", 3)}, {x}}),
            "com.microsoft.MatMulNBits: weights of 3 bits");
  const Tensor bytes = Bytes({2, 8}, 0, ElementType::kU8), index = Tensor::Of<int64_t>({1}, {0});
  EXPECT_EQ(Refusal({"",
                     "GatherBlockQuantized",
                     kContrib,
                     {bytes, index, Ramp({2, 1}, 1)},
                     {Int("gather_axis", 1)},
                     {x}}),
            "com.microsoft.GatherBlockQuantized: 'gather_axis' is the one along which numbers are "
            "packed or scaled");
  EXPECT_EQ(Refusal({"",
                     "MoE",
                     kContrib,
                     {Ramp({3, 4}, 0), Ramp({3, 2}, 1), Ramp({2, 2, 4}, 2), {}, Ramp({2, 4, 2}, 3)},
                     {Str("activation_type", "swiglu")},
                     {x}}),
            "com.microsoft.MoE: 'swiglu' whose parts lie in different weights");
  EXPECT_EQ(Refusal({"",
                     "MoE",
                     kContrib,
                     {Ramp({}, 0), Ramp({3, 2}, 1), Ramp({2, 2, 4}, 2), {}, Ramp({2, 4, 2}, 3)},
                     {},
                     {x}}),
            "com.microsoft.MoE: input 0 is a scalar");
}

}  // namespace
}  // namespace lathe::onnx
