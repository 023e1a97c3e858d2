//! The golden models: what their files say, and their exact graphs, rebuilt through the public builder.

mod graphs;
mod plans;
mod results;

use serde_json::Value;
use std::path::{Path, PathBuf};
use wgfuse::graph::{
    DType, FlashAttn, Glu, Graph, LeafKind, MatrixHint, Op, OpKind, Precision, Rope, RopeMode, SortOrder, TensorId,
    Triangle, Unary, Window, Xielu,
};
use wgfuse::model::Variant;

/// Where the golden files are; `None`, and a line that says so, when the variable is unset.
pub fn directory() -> Option<PathBuf> {
    let Some(directory) = std::env::var_os("WGFUSE_GOLDEN") else {
        eprintln!("skipped: WGFUSE_GOLDEN is not set");
        return None;
    };
    let directory = PathBuf::from(directory);
    assert!(directory.is_dir(), "WGFUSE_GOLDEN is {}, which is no directory", directory.display());
    Some(directory)
}

/// A golden model as its file describes it.
struct Model {
    /// `ARCH-dense` or `ARCH-moe`.
    name: String,
    /// The architecture.
    arch: String,
    json: Value,
    path: PathBuf,
}

/// One graph of a model.
struct Golden {
    /// The graph, rebuilt.
    graph: Graph,
    /// Every entry of the file with the tensor it became.
    entries: Vec<(TensorId, Value)>,
}

/// Why a graph was not rebuilt.
#[derive(Debug)]
enum Refusal {
    /// An operation, or a parameter of one, that the crate does not know.
    Unsupported(String),
    /// The builder refused, or built something else.
    Wrong(String),
}

/// Every model, by name.
fn models(directory: &Path) -> Vec<Model> {
    let files = std::fs::read_dir(directory).expect("a directory that can be listed");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.iter().map(|path| model(path)).collect()
}

/// The models that the crate can build itself; none when the variable is unset.
fn dummies() -> Vec<(Variant, Model)> {
    let Some(directory) = directory() else { return Vec::new() };
    Variant::all().map(|variant| (variant, model(&directory.join(format!("{variant}.json"))))).collect()
}

fn model(path: &Path) -> Model {
    let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let json: Value = serde_json::from_slice(&text).expect("valid JSON");
    let arch = json["arch"].as_str().expect("an architecture").to_owned();
    Model { name, arch, json, path: path.to_owned() }
}

impl Model {
    /// The file as it stands there.
    fn text(&self) -> String {
        std::fs::read_to_string(&self.path).expect("a readable file")
    }

    /// The tokens of the `prefill` or `decode`.
    fn tokens(&self, phase: &str) -> Vec<i32> {
        let tokens = self.json[phase]["tokens"].as_array().expect("tokens");
        tokens.iter().map(|token| token.as_i64().expect("a token") as i32).collect()
    }

    /// The rows of logits: those of the prefill, then those of the decode.
    fn logits(&self) -> Vec<f32> {
        let bytes = std::fs::read(self.path.with_extension("logits.f32")).expect("a readable file");
        bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
    }

    /// The `prefill` or `decode` graph.
    fn graph(&self, phase: &str) -> Result<Golden, Refusal> {
        let nodes = self.json[phase]["nodes"].as_array().expect("nodes");
        let mut golden = Golden { graph: Graph::new(), entries: Vec::with_capacity(nodes.len()) };
        for node in nodes {
            let id = add(&mut golden, node)?;
            golden.entries.push((id, node.clone()));
        }
        Ok(golden)
    }
}

/// Every entry is a tensor of its own: equal names stand for equal contents only (a tied weight, the masks of two
/// caches), and their shapes may differ.
fn add(golden: &mut Golden, node: &Value) -> Result<TensorId, Refusal> {
    let flags = node["flags"].as_u64().unwrap_or(0);
    let id = match node["leaf"].as_str() {
        Some(name) => {
            let kind = match name {
                // Some models give the states in their caches names of their own.
                _ if name.starts_with("cache_") || name.contains("_state") => LeafKind::Cache,
                // The destination of a cast, which the file lists like a leaf, is memory for one run as inputs are.
                _ if flags & 1 != 0 || name.ends_with(" (copy)") => LeafKind::Input,
                _ => LeafKind::Weight,
            };
            let leaf = golden.graph.leaf(name, kind, dtype(node)?, four(&node["ne"]));
            leaf.map_err(|error| Refusal::Wrong(error.to_string()))?
        }
        None => {
            let source = |index: &Value| index.as_u64().map(|at| golden.entries[at as usize].0);
            let sources: Vec<_> = node["src"].as_array().expect("sources").iter().map(source).collect();
            let made = golden.graph.push(op(node)?, &sources);
            let id = made.map_err(|error| Refusal::Wrong(format!("{}: {error}", node["name"])))?;
            golden.graph.expand(id).expect("a tensor of this graph");
            golden.graph.set_name(id, node["name"].as_str().unwrap_or("")).expect("a tensor of this graph");
            id
        }
    };
    if flags & 2 != 0 {
        golden.graph.set_output(id).expect("a tensor of this graph");
    }
    Ok(id)
}

fn op(node: &Value) -> Result<Op, Refusal> {
    let label = node["op"].as_str().expect("an operation");
    let word = |index: usize| node["params"][index].as_i64().unwrap_or(0) as u32;
    let float = |index: usize| f32::from_bits(word(index));
    let precision = |index: usize| if word(index) == 10 { Precision::F32 } else { Precision::Default };
    let unsupported = |what: String| Refusal::Unsupported(format!("{label}{what}"));
    let kind = OpKind::ALL.iter().find(|kind| kind.label() == label).ok_or_else(|| unsupported(String::new()))?;
    let ne = four(&node["ne"]);
    let in_place = node["view_of"].as_u64().is_some();
    let window = Window { nb: [0, 1, 2].map(|at| word(at) as usize), offset: word(3) as usize };
    let glu = |glu| Op::Glu { glu, swapped: word(1) != 0 };
    Ok(match kind {
        OpKind::None => return Err(unsupported(String::new())),
        OpKind::View => Op::View { ne, nb: four(&node["nb"]), offset: word(0) as usize | (word(1) as usize) << 32 },
        OpKind::Reshape => Op::Reshape { ne },
        OpKind::Permute => Op::Permute { axes: [0, 1, 2, 3].map(|axis| word(axis) as u8) },
        OpKind::Transpose => Op::Transpose,
        OpKind::GetRows => Op::GetRows,
        OpKind::SetRows => Op::SetRows,
        OpKind::Cpy => Op::Cpy,
        OpKind::Cont => Op::Cont { ne },
        OpKind::MulMat => Op::MulMat {
            precision: precision(0),
            hint: if word(1) == 1 { MatrixHint::Hadamard } else { MatrixHint::None },
        },
        OpKind::MulMatId => Op::MulMatId { precision: precision(3) },
        OpKind::Add => Op::Add,
        OpKind::Sub => Op::Sub,
        OpKind::Mul => Op::Mul,
        OpKind::Div => Op::Div,
        OpKind::Scale => Op::Scale { scale: float(0), bias: float(1), in_place },
        OpKind::Repeat => Op::Repeat { ne },
        OpKind::Concat => Op::Concat { dim: word(0) as u8 },
        OpKind::Norm => Op::Norm { eps: float(0) },
        OpKind::RmsNorm => Op::RmsNorm { eps: float(0) },
        OpKind::SoftMax => Op::SoftMax { scale: float(0), max_bias: float(1) },
        OpKind::Rope | OpKind::RopeBack => {
            let sections = [11, 12, 13, 14].map(word);
            let mode = match word(2) {
                0 => RopeMode::Normal,
                2 => RopeMode::Neox,
                8 => RopeMode::Mrope { sections },
                24 => RopeMode::Vision { sections },
                40 => RopeMode::Imrope { sections },
                other => return Err(unsupported(format!(" mode {other}"))),
            };
            let rope = Rope {
                n_dims: word(1),
                first_dim: word(15),
                mode,
                n_ctx_orig: word(4),
                freq_base: float(5),
                freq_scale: float(6),
                ext_factor: float(7),
                attn_factor: float(8),
                beta_fast: float(9),
                beta_slow: float(10),
            };
            if *kind == OpKind::Rope { Op::Rope(rope) } else { Op::RopeBack(rope) }
        }
        OpKind::FlashAttn => Op::FlashAttn(FlashAttn {
            scale: float(0),
            max_bias: float(1),
            logit_softcap: float(2),
            precision: precision(3),
        }),
        OpKind::SumRows => Op::SumRows,
        OpKind::Sum => Op::Sum,
        OpKind::Mean => Op::Mean,
        OpKind::CumSum => Op::CumSum,
        OpKind::CountEqual => Op::CountEqual,
        OpKind::Argmax => Op::Argmax,
        OpKind::TopK => Op::TopK { k: ne[0] },
        OpKind::L2Norm => Op::L2Norm { eps: float(0) },
        OpKind::GroupNorm => Op::GroupNorm { groups: word(0), eps: float(1) },
        OpKind::OutProd => Op::OutProd,
        OpKind::SolveTri => Op::SolveTri,
        OpKind::GetRowsBack => Op::GetRowsBack { rows: ne[1] },
        OpKind::RepeatBack => Op::RepeatBack { ne },
        OpKind::RmsNormBack => Op::RmsNormBack { eps: float(0) },
        OpKind::SoftMaxBack => Op::SoftMaxBack { scale: float(0), max_bias: float(1) },
        OpKind::CrossEntropyLoss => Op::CrossEntropyLoss,
        OpKind::CrossEntropyLossBack => Op::CrossEntropyLossBack,
        OpKind::OptStepAdamW => Op::OptStepAdamW,
        OpKind::OptStepSgd => Op::OptStepSgd,
        OpKind::Argsort => {
            Op::Argsort { order: if word(0) == 0 { SortOrder::Ascending } else { SortOrder::Descending } }
        }
        OpKind::Clamp => Op::Clamp { min: float(0), max: float(1) },
        OpKind::Sqr => Op::Sqr,
        OpKind::Sin => Op::Sin,
        OpKind::Sqrt => Op::Sqrt,
        OpKind::Cos => Op::Cos,
        OpKind::Log => Op::Log,
        OpKind::LeakyRelu => Op::LeakyRelu { negative_slope: float(0) },
        OpKind::Xielu => Op::Xielu(Xielu { alpha_n: float(1), alpha_p: float(2), beta: float(3), eps: float(4) }),
        OpKind::SiluBack => Op::SiluBack,
        OpKind::Dup => Op::Dup,
        OpKind::AddId => Op::AddId,
        OpKind::Acc => Op::Acc { window, in_place },
        OpKind::Set => Op::Set { window, in_place },
        OpKind::Fill => Op::Fill { value: float(0), in_place },
        OpKind::Arange => Op::Arange { start: float(0), stop: float(1), step: float(2) },
        OpKind::TimestepEmbedding => Op::TimestepEmbedding { dim: word(0), max_period: word(1) },
        OpKind::Tri => Op::Tri { part: Triangle::ALL[word(0) as usize] },
        OpKind::Diag => Op::Diag,
        OpKind::DiagMaskInf => Op::DiagMaskInf { n_past: word(0), in_place },
        OpKind::DiagMaskZero => Op::DiagMaskZero { n_past: word(0), in_place },
        OpKind::Abs => Op::Unary(Unary::Abs),
        OpKind::Sgn => Op::Unary(Unary::Sgn),
        OpKind::Neg => Op::Unary(Unary::Neg),
        OpKind::Step => Op::Unary(Unary::Step),
        OpKind::Tanh => Op::Unary(Unary::Tanh),
        OpKind::Elu => Op::Unary(Unary::Elu),
        OpKind::Relu => Op::Unary(Unary::Relu),
        OpKind::Sigmoid => Op::Unary(Unary::Sigmoid),
        OpKind::Gelu => Op::Unary(Unary::Gelu),
        OpKind::GeluQuick => Op::Unary(Unary::GeluQuick),
        OpKind::Silu => Op::Unary(Unary::Silu),
        OpKind::HardSwish => Op::Unary(Unary::HardSwish),
        OpKind::HardSigmoid => Op::Unary(Unary::HardSigmoid),
        OpKind::Exp => Op::Unary(Unary::Exp),
        OpKind::Expm1 => Op::Unary(Unary::Expm1),
        OpKind::Softplus => Op::Unary(Unary::Softplus),
        OpKind::GeluErf => Op::Unary(Unary::GeluErf),
        OpKind::Floor => Op::Unary(Unary::Floor),
        OpKind::Ceil => Op::Unary(Unary::Ceil),
        OpKind::Round => Op::Unary(Unary::Round),
        OpKind::Trunc => Op::Unary(Unary::Trunc),
        OpKind::Reglu => glu(Glu::Reglu),
        OpKind::Geglu => glu(Glu::Geglu),
        OpKind::Swiglu => glu(Glu::Swiglu),
        OpKind::SwigluOai => glu(Glu::SwigluOai { alpha: float(2), limit: float(3) }),
        OpKind::GegluErf => glu(Glu::GegluErf),
        OpKind::GegluQuick => glu(Glu::GegluQuick),
        OpKind::SwigluClamp => glu(Glu::SwigluClamp { limit: float(3) }),
        OpKind::SsmConv => Op::SsmConv,
        OpKind::GatedDeltaNet => Op::GatedDeltaNet { snapshots: word(0) },
    })
}

fn dtype(node: &Value) -> Result<DType, Refusal> {
    let name = node["type"].as_str().expect("a type");
    DType::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| Refusal::Unsupported(name.to_owned()))
}

/// Four numbers of the file.
fn four(numbers: &Value) -> [usize; 4] {
    [0, 1, 2, 3].map(|at| numbers[at].as_u64().expect("a number") as usize)
}
