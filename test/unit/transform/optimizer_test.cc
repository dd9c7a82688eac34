// Ten updates of every optimizer beside numbers computed elsewhere, and what they refuse.
//
// The numbers are those of a script in numpy, in double, that follows the documentation of
// torch.optim and the papers of Lion and LAMB: the parameters after ten steps on the mean of
// (x w + b - y)^2 with x = sin(1), sin(2) ..., y = cos(0), cos(2), cos(4) ..., w = 0.1 (-2, -1, ...
// 3), b = (0.3, -0.2).
#include "lathe/transform/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lathe/pass/pass_manager.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

constexpr const char* kModel = R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[4, 3], f64>
  %y = nn.feed() {name = "y"} : () -> v_tensor<[4, 2], f64>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[3, 2], f64>
  %b = builtin.get_parameter() {name = "b"} : () -> v_tensor<[2], f64>
  %p = nn.matmul(%x, %w) : (v_tensor<[4, 3], f64>, v_tensor<[3, 2], f64>) -> v_tensor<[4, 2], f64>
  %q = nn.add(%p, %b) : (v_tensor<[4, 2], f64>, v_tensor<[2], f64>) -> v_tensor<[4, 2], f64>
  %d = nn.sub(%q, %y) : (v_tensor<[4, 2], f64>, v_tensor<[4, 2], f64>) -> v_tensor<[4, 2], f64>
  %s = nn.mul(%d, %d) : (v_tensor<[4, 2], f64>, v_tensor<[4, 2], f64>) -> v_tensor<[4, 2], f64>
  %l = nn.reduce_mean(%s, none) {keepdims = false} : (v_tensor<[4, 2], f64>, none) -> v_tensor<[], f64>
  nn.fetch(%l) {name = "loss"} : (v_tensor<[], f64>) -> ()
)";

struct Row {
  const char* optimizer;
  std::vector<double> expected;  ///< w, then b
};

const std::vector<Row>& Table() {
  static const std::vector<Row> kTable = {
      {"sgd",
       {-0.197648202768617, -0.104961863516302, 0.00207241490100993, 0.0930873530340605,
        0.199887663868079, 0.297492025325603, 0.299842262514585, -0.198142721872232}},
      {"sgd{lr=0.1,momentum=0.9,dampening=0.3,weight_decay=0.05}",
       {0.197588509366085, -0.572567082290606, 0.161240346637638, -0.582665557785632,
        -0.0233514471914971, 0.0211161126591203, 0.238332218837041, 0.0880860155040909}},
      {"sgd{lr=0.1,momentum=0.9,nesterov=true}",
       {0.245172827185378, -0.476274130202722, 0.0780437719674644, -0.400058837811422,
        -0.160838367280041, 0.135908243924216, 0.246828470844244, 0.0494034511419607}},
      {"sgd{lr=0.1,maximize=true}",
       {-0.613420751827342, 0.932030892508638, -0.451835445183491, 1.53972808970317,
        0.125165286016147, 0.823745920870869, 0.319841487388834, -0.499518159181839}},
      {"adam",
       {-0.190012650181307, -0.109991121851021, 0.00997923422516734, 0.0900092452861668,
        0.1898982943255, 0.290009973897125, 0.290296755236461, -0.190018628805327}},
      {"adam{lr=0.05,betas=[0.8,0.95],eps=0.001,weight_decay=0.1}",
       {0.177813670012056, -0.491966156208251, 0.149767838359862, -0.298004150675971,
        -0.300231766648545, -0.0886543954494225, 0.202639427012106, 0.017478004214659}},
      {"adam{lr=0.3,betas=[0.5,0.5],amsgrad=true}",
       {0.955407468809176, -0.52560677987645, 0.0908724612251677, -0.267325534898108,
        -1.72438811032813, 0.047969078582941, 0.116184507393513, -0.0133739039690859}},
      {"adamw",
       {-0.189993106381008, -0.109980667789376, 0.0099787731317699, 0.0899997015198531,
        0.189878699673019, 0.289980433560823, 0.290268577575599, -0.189999121459322}},
      {"adamw{lr=0.05,weight_decay=0.1}",
       {0.191498753629682, -0.517185099628169, 0.203719213880522, -0.321799218208482,
        -0.284305178521436, -0.120458793835799, 0.233286543994939, 0.0481616563961821}},
      {"adagrad",
       {-0.15166486693671, -0.148849295580018, 0.0471550513952466, 0.0512076903814448,
        0.140314185575241, 0.251321276753761, 0.279292831909038, -0.152696616565672}},
      {"adagrad{lr=0.1,lr_decay=0.2,weight_decay=0.1,initial_accumulator_value=0.5,eps=0.01}",
       {-0.0679053996808701, -0.290244290439231, 0.0885206418680684, -0.125648334445576,
        0.152363021354638, 0.162853075438715, 0.272203685923112, -0.0931935121836285}},
      {"rmsprop",
       {0.161080123510141, -0.429667844194553, 0.180071909895638, -0.222021863507078,
        -0.395636560527189, -0.00603640914634317, 0.232560188920321, -0.0219535432322218}},
      {"rmsprop{lr=0.02,alpha=0.9,eps=0.001,weight_decay=0.1,momentum=0.5,centered=true}",
       {0.275834191600831, -0.439039356111484, 0.137100977274112, -0.261997643718591,
        -0.514262146858501, -0.0439339155242908, 0.196210140307188, -0.0281256866934679}},
      {"lion", {-0.199, -0.101, 0.001, 0.099, 0.199, 0.299, 0.299, -0.199}},
      {"lion{lr=0.01,betas=[0.8,0.9],weight_decay=0.1}",
       {-0.0984577781394318, -0.198555685923493, 0.0995511979025179, -0.000546709881543078,
        0.0984577781394318, 0.197462266160407, 0.277202785560806, -0.0984577781394318}},
      {"lamb",
       {-0.19822504392507, -0.101769753417836, 0.00177116013765871, 0.0982267184366586,
        0.19822029584326, 0.298223211885332, 0.297466883893125, -0.197456554751163}},
      {"lamb{lr=0.1,betas=[0.8,0.9],weight_decay=0.2}",
       {-0.0528402687224658, -0.240550741976062, 0.135693324058694, -0.0460798849654636,
        0.0473379231930445, 0.148757425474205, 0.279856754486593, 0.0753452872196593}},
      {"sgd{lr=0.1,clip_value=0.1}",
       {-0.0999999999999999, -0.2, 0.0963539334505785, -3.46944695195361e-17, 0.165400962659536,
        0.2, 0.287904447542441, -0.100624508329666}},
      {"sgd{lr=0.1,clip_norm=0.2}",
       {-0.147492776947163, -0.205838962738406, 0.0432061594915774, -0.0462890302395948,
        0.194181552149175, 0.247758362015072, 0.288947673685325, -0.0786322185077455}},
      {"sgd{lr=0.1,clip_global_norm=0.3}",
       {-0.120587242357641, -0.253983033038677, 0.0624858804869201, -0.114170283420422,
        0.188109772980209, 0.222549637077703, 0.29405252348667, -0.137125005462213}},
      {"adamw{lr=0.05,groups=[bias{parameters=[b],lr=0.2,weight_decay=0}]}",
       {0.187395467828111, -0.52856699457028, 0.210294607424727, -0.32621420754198,
        -0.286943029013816, -0.119310516431194, 0.153732811577813, -0.043383252896087}},
      {"sgd{lr=0.1,frozen=[b]}",
       {-0.0427674382287497, -0.36181714803191, 0.101573713222491, -0.268022394910635,
        0.152528461168152, 0.164130450869249, 0.3, -0.2}},
      {"sgd{lr=0.1,schedule=step,step_size=3,gamma=0.5}",
       {-0.09920138807716, -0.290233407988428, 0.0764241062627107, -0.164421939063103,
        0.181785629752469, 0.204497841192589, 0.292217246705141, -0.120365449986647}},
      {"sgd{lr=0.1,schedule=cosine,total_steps=8,min_lr=0.01}",
       {-0.103907222021951, -0.282863514759281, 0.0736942187850638, -0.154231107049738,
        0.183541534699393, 0.208140208034515, 0.292647416194908, -0.123996014983}},
      {"sgd{lr=0.1,schedule=linear,total_steps=8,min_lr=0.01}",
       {-0.104078363177262, -0.282356256058935, 0.0734619379381011, -0.15351852435556,
        0.183461672100259, 0.208402969479741, 0.29265274317169, -0.124153381533064}},
      {"sgd{lr=0.1,warmup=4}",
       {-0.0608621009413338, -0.344047329206, 0.0951930096194715, -0.238518382994973,
        0.163728106141191, 0.178242803384123, 0.288450336218793, -0.091729990172593}},
      {"sgd{lr=0.1,schedule=one_cycle,total_steps=10}",
       {-0.111272159507914, -0.270952760599903, 0.0692122946036196, -0.137743125636865,
        0.186063284245436, 0.214046442628109, 0.293304593035849, -0.129725261298474}},
      {"sgd{lr=0.1,schedule=cosine,total_steps=7,warmup=3,warmup_start=0.1}",
       {-0.101763202417143, -0.286181847227477, 0.0749161164174, -0.158817953617553,
        0.182717903311157, 0.206501972948203, 0.29244967041263, -0.122343645702947}},
  };
  return kTable;
}

class OptimizerTest : public ProgramTest {
 protected:
  Program Model() {
    Program program = Parse(kModel);
    Insert(program, "w", Tensor::Of<double>({3, 2}, {-0.2, -0.1, 0, 0.1, 0.2, 0.3}));
    Insert(program, "b", Tensor::Of<double>({2}, {0.3, -0.2}));
    return program;
  }

  void Insert(Program& program, std::string_view name, Tensor data) {
    program.parameters().Insert(StrAttribute::Get(context_, name), {.data = std::move(data)});
  }

  Program Train(const std::string& optimizer, const char* backward = "append_backward,") {
    Program program = Model();
    Apply(program, backward + optimizer);
    return program;
  }

  static void Apply(Program& program, const std::string& passes) {
    PassManager manager({.verify_each = true});
    manager.Add(passes);
    manager.Run(program);
  }

  /// The examples from `first` to `end`.
  static NamedValues Batch(int64_t first = 0, int64_t end = 4) {
    std::vector<double> x, y;
    for (int64_t i = first * 3; i < end * 3; ++i) x.push_back(std::sin(static_cast<double>(i + 1)));
    for (int64_t i = first * 2; i < end * 2; ++i) y.push_back(std::cos(2 * static_cast<double>(i)));
    return {{"x", Tensor::Of<double>({end - first, 3}, x)},
            {"y", Tensor::Of<double>({end - first, 2}, y)}};
  }

  static void Run(Program& program, int steps) {
    for (int i = 0; i < steps; ++i) (void)Interpreter(program).Run(Batch());
  }

  static std::vector<double> Values(const Program& program, std::string_view name) {
    const Variable* variable = program.parameters().Find(name);
    EXPECT_NE(variable, nullptr) << name;
    return variable == nullptr ? std::vector<double>() : ToDoubles(variable->data);
  }

  static std::vector<double> Weights(const Program& program) {
    std::vector<double> all = Values(program, "w");
    for (const double b : Values(program, "b")) all.push_back(b);
    return all;
  }

  Error ErrorOfTraining(const std::string& optimizer, const char* backward = "append_backward,") {
    return ErrorOf([&] { (void)Train(optimizer, backward); });
  }
};

void ExpectClose(const std::vector<double>& actual, const std::vector<double>& expected,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-12 * (1 + std::abs(expected[i]))) << what << " " << i;
  }
}

TEST_F(OptimizerTest, TenStepsOfEach) {
  for (const Row& row : Table()) {
    Program program = Train(row.optimizer);
    EXPECT_EQ(program.fetches().size(), 1u) << row.optimizer;
    Run(program, 10);
    ExpectClose(Weights(program), row.expected, row.optimizer);
    EXPECT_EQ(Values(program, kStepCounter), std::vector<double>{10});
  }
}

// What is fused, folded and merged afterwards updates the same.
TEST_F(OptimizerTest, OptimizedProgramsUpdateTheSame) {
  for (const Row& row : Table()) {
    Program program = Train(StrCat(row.optimizer, ",simplify,cse,dead_code"));
    Run(program, 10);
    ExpectClose(Weights(program), row.expected, row.optimizer);
  }
}

TEST_F(OptimizerTest, MicroBatchesMakeOneBatch) {
  Program program = Train("adamw{lr=0.05,weight_decay=0.1,accumulate=2}");
  for (int i = 0; i < 10; ++i) {
    (void)Interpreter(program).Run(Batch());
    EXPECT_EQ(Values(program, kMicroStepCounter), std::vector<double>{1});
    (void)Interpreter(program).Run(Batch());
    EXPECT_EQ(Values(program, kMicroStepCounter), std::vector<double>{0});
    EXPECT_EQ(Values(program, kStepCounter), std::vector<double>{i + 1.0});
  }
  Program whole = Train("adamw{lr=0.05,weight_decay=0.1}");
  Run(whole, 10);
  ExpectClose(Weights(program), Weights(whole), "accumulated");
}

TEST_F(OptimizerTest, ThePlateauFactorIsTheTrainers) {
  Program program = Train("sgd{lr=0.1,schedule=plateau}");
  Program plain = Train("sgd{lr=0.1}"), slow = Train("sgd{lr=0.05}");
  Run(program, 3);
  Run(plain, 3);
  ExpectClose(Weights(program), Weights(plain), "before");
  program.parameters().Find(kRateFactor)->data = Tensor::Scalar<double>(0.5);
  slow.parameters().Find("w")->data = plain.parameters().Find("w")->data;
  slow.parameters().Find("b")->data = plain.parameters().Find("b")->data;
  Run(program, 3);
  Run(slow, 3);
  ExpectClose(Weights(program), Weights(slow), "after");
  EXPECT_TRUE(program.parameters().Find(kRateFactor)->is_mutable);
}

TEST_F(OptimizerTest, NamesOfState) {
  Program program = Train("rmsprop{centered=true,momentum=0.9,accumulate=2,schedule=plateau}");
  std::vector<std::string> names;
  for (const auto& entry : program.parameters()) {
    if (IsOptimizerState(entry.name.value())) names.emplace_back(entry.name.value());
    EXPECT_TRUE(entry.variable.is_mutable) << entry.name.value();
  }
  const std::vector<std::string> expected = {
      "w@gradient.sum",           "b@gradient.sum",
      "optimizer@micro_step",     "optimizer@step",
      "optimizer@rate_factor",    "w@rmsprop.square_avg",
      "w@rmsprop.grad_avg",       "w@rmsprop.momentum_buffer",
      "b@rmsprop.square_avg",     "b@rmsprop.grad_avg",
      "b@rmsprop.momentum_buffer"};
  EXPECT_EQ(names, expected);
  EXPECT_FALSE(IsOptimizerState("w"));
  EXPECT_FALSE(IsOptimizerState("w@GRAD"));
  EXPECT_FALSE(IsOptimizerState("user@example.com"));
}

TEST_F(OptimizerTest, GradientsStayOutputsIfAsked) {
  EXPECT_EQ(Train("sgd{keep_gradients=true}").fetches().size(), 3u);
  EXPECT_EQ(Train("sgd{parameters=[w]}").fetches().size(), 2u);
  Program unmarked = Train("sgd{lr=0.1}", "append_backward{store=none},");
  Program marked = Train("sgd{lr=0.1}");
  Run(unmarked, 2);
  Run(marked, 2);
  EXPECT_EQ(Weights(unmarked), Weights(marked));
}

// One value can be the gradient of two parameters.
TEST_F(OptimizerTest, ASharedGradientUpdatesBoth) {
  Program program = Parse(R"(
    %a = builtin.get_parameter() {name = "a"} : () -> v_tensor<[2], f64>
    %b = builtin.get_parameter() {name = "b"} : () -> v_tensor<[2], f64>
    %s = nn.add(%a, %b) : (v_tensor<[2], f64>, v_tensor<[2], f64>) -> v_tensor<[2], f64>
    nn.fetch(%s) {name = "loss"} : (v_tensor<[2], f64>) -> ()
  )");
  Insert(program, "a", Tensor::Of<double>({2}, {1, 2}));
  Insert(program, "b", Tensor::Of<double>({2}, {3, 4}));
  Program folded = program.Clone();
  Apply(program, "append_backward,sgd{lr=0.5},cse,simplify");
  (void)Interpreter(program).Run({});
  EXPECT_EQ(Values(program, "a"), (std::vector<double>{0.5, 1.5}));
  EXPECT_EQ(Values(program, "b"), (std::vector<double>{2.5, 3.5}));
  const Error error = ErrorOf([&] { Apply(folded, "append_backward,simplify,sgd"); });
  EXPECT_EQ(error.id(), "gradient/parameter");
  EXPECT_NE(error.Render().find("optimize behind sgd"), std::string::npos);
}

TEST_F(OptimizerTest, Refusals) {
  const auto expect = [&](const std::string& optimizer, const char* id, const char* text,
                          const char* backward = "append_backward,") {
    const Error error = ErrorOfTraining(optimizer, backward);
    EXPECT_EQ(error.id(), id) << optimizer;
    EXPECT_NE(error.Render().find(text), std::string::npos) << error.Render();
  };
  expect("adamw", "gradient/missing", "append_backward,adamw", "");
  expect("sgd{parameters=[v]}", "optimizer/parameter", "there is 'w', 'b'");
  expect("sgd{frozen=[ww]}", "optimizer/parameter", "there is no parameter with a gradient 'ww'");
  expect("sgd{frozen=[*]}", "optimizer/parameter", "no parameter is left");
  expect("sgd{groups=[a{parameters=[w]},c{parameters=[?]}]}", "optimizer/two-groups",
         "'w' is in the groups 'a' and 'c'");
  expect("sgd{groups=[a{lr=1}]}", "optimizer/group", "group 'a' has no parameters");
  expect("sgd{groups=[a{parameters=[w],accumulate=2}]}", "optimizer/group", "sets accumulate");
  expect("sgd{groups=[a{parameters=[w],momentun=2}]}", "pass/option", "did you mean 'momentum'");
  expect("sgd{nesterov=true}", "optimizer/option", "nesterov needs a momentum");
  expect("sgd{lr=-1}", "optimizer/option", "lr is -1");
  expect("adam{betas=[0.9]}", "optimizer/option", "not two numbers");
  expect("adam{betas=[0.9,1]}", "optimizer/option", "not two numbers");
  expect("sgd{schedule=cosin}", "optimizer/option", "did you mean 'cosine'");
  expect("sgd{schedule=cosine}", "optimizer/option", "needs total_steps");
  expect("sgd{schedule=one_cycle,total_steps=3}", "optimizer/option", "nothing is left");
  expect("sgd,adam", "optimizer/twice", "has an optimizer already");
  expect("sgd{keep_gradients=true},adam", "optimizer/twice", "has an optimizer already");
}

}  // namespace
}  // namespace lathe::testing
