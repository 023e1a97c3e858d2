//! Golden models: exact graphs with the results of another implementation, rebuilt and run on the CPU device.
//!
//! `WGFUSE_GOLDEN` names the folder; unset, the test is skipped with a line.

use crate::rig::{Random, Rig};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use wgfuse::graph::{
    DType, FlashAttn, Glu, LeafKind, Op, OpKind, Precision, Rope, RopeMode, SortOrder, TensorId, Unary,
};

const MODELS: [&str; 8] = [
    "llama-dense",
    "llama-moe",
    "gpt2-dense",
    "phi2-dense",
    "falcon-dense",
    "gemma2-dense",
    "qwen2moe-moe",
    "qwen3next-moe",
];

/// Each model's rows of logits for the prefill.
const PREFILL: usize = 32;

fn golden() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("WGFUSE_GOLDEN")?);
    assert!(folder.is_dir(), "WGFUSE_GOLDEN names no folder: {}", folder.display());
    Some(folder)
}

/// One entry of a golden graph.
struct Entry<'a>(&'a Value);

impl Entry<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.0[key].as_str()
    }

    fn numbers(&self, key: &str) -> Vec<i64> {
        self.0[key].as_array().map_or_else(Vec::new, |all| all.iter().map(|v| v.as_i64().unwrap()).collect())
    }

    fn four(&self, key: &str) -> [usize; 4] {
        let all = self.numbers(key);
        std::array::from_fn(|dim| all[dim] as usize)
    }

    fn dtype(&self) -> DType {
        let name = self.text("type").unwrap();
        DType::ALL.into_iter().find(|dtype| dtype.name() == name).unwrap()
    }

    fn word(&self, index: usize) -> u32 {
        self.numbers("params").get(index).map_or(0, |&word| word as u32)
    }

    fn float(&self, index: usize) -> f32 {
        f32::from_bits(self.word(index))
    }

    fn is_view(&self) -> bool {
        self.0["view_of"].is_number()
    }

    /// The operation; `source` is the first source's place in its root.
    fn op(&self, source_offset: usize) -> Op {
        let ne = self.four("ne");
        let swapped = self.word(1) != 0;
        match self.text("op").unwrap() {
            "VIEW" => Op::View {
                ne,
                nb: self.four("nb"),
                offset: self.0["view_offs"].as_u64().unwrap() as usize - source_offset,
            },
            "RESHAPE" => Op::Reshape { ne },
            "PERMUTE" => Op::Permute { axes: std::array::from_fn(|axis| self.word(axis) as u8) },
            "TRANSPOSE" => Op::Transpose,
            "GET_ROWS" => Op::GetRows,
            "SET_ROWS" => Op::SetRows,
            "CPY" => Op::Cpy,
            "CONT" => Op::Cont { ne },
            "MUL_MAT" => Op::MulMat,
            "MUL_MAT_ID" => Op::MulMatId,
            "ADD" => Op::Add,
            "SUB" => Op::Sub,
            "MUL" => Op::Mul,
            "DIV" => Op::Div,
            "SCALE" => Op::Scale { scale: self.float(0), bias: self.float(1), in_place: self.is_view() },
            "REPEAT" => Op::Repeat { ne },
            "CONCAT" => Op::Concat { dim: self.word(0) as u8 },
            "NORM" => Op::Norm { eps: self.float(0) },
            "RMS_NORM" => Op::RmsNorm { eps: self.float(0) },
            "SOFT_MAX" => Op::SoftMax { scale: self.float(0), max_bias: self.float(1) },
            "ROPE" => Op::Rope(Rope {
                n_dims: self.word(1),
                mode: if self.word(2) == 2 { RopeMode::Neox } else { RopeMode::Normal },
                n_ctx_orig: self.word(4),
                freq_base: self.float(5),
                freq_scale: self.float(6),
                ext_factor: self.float(7),
                attn_factor: self.float(8),
                beta_fast: self.float(9),
                beta_slow: self.float(10),
            }),
            "FLASH_ATTN_EXT" => Op::FlashAttn(FlashAttn {
                scale: self.float(0),
                max_bias: self.float(1),
                logit_softcap: self.float(2),
                precision: if self.word(3) == 10 { Precision::F32 } else { Precision::Default },
            }),
            "SUM_ROWS" => Op::SumRows,
            "ARGSORT" => {
                Op::Argsort { order: if self.word(0) == 1 { SortOrder::Descending } else { SortOrder::Ascending } }
            }
            "CLAMP" => Op::Clamp { min: self.float(0), max: self.float(1) },
            "TANH" => Op::Unary(Unary::Tanh),
            "SIGMOID" => Op::Unary(Unary::Sigmoid),
            "GELU" => Op::Unary(Unary::Gelu),
            "SILU" => Op::Unary(Unary::Silu),
            "SOFTPLUS" => Op::Unary(Unary::Softplus),
            "GEGLU" => Op::Glu { glu: Glu::Geglu, swapped },
            "SWIGLU" => Op::Glu { glu: Glu::Swiglu, swapped },
            "SSM_CONV" => Op::SsmConv,
            "GATED_DELTA_NET" => Op::GatedDeltaNet { snapshots: self.word(0) },
            other => panic!("{other} is not among the operations of these models"),
        }
    }

    /// What a leaf holds before the run; nothing for zeros.
    fn contents(&self) -> (LeafKind, Vec<f64>) {
        let name = self.text("leaf").unwrap();
        let ne = self.four("ne");
        if name.starts_with("cache_") {
            return (LeafKind::Cache, Vec::new());
        }
        if self.0["flags"] != 1 {
            return (LeafKind::Weight, weights(name, ne.iter().product()));
        }
        if name.ends_with("kq_mask") {
            // One sequence from position 0: cell and position have the same number.
            let hidden = |i: usize| if i % ne[0] <= i / ne[0] { 0.0 } else { f64::NEG_INFINITY };
            return (LeafKind::Input, (0..ne[0] * ne[1]).map(hidden).collect());
        }
        (LeafKind::Input, self.numbers("first").iter().map(|&v| v as f64).collect())
    }
}

/// The weights of a golden model: pseudo-random by name, sigma 0.1.
fn weights(name: &str, count: usize) -> Vec<f64> {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mut random = Random(hash ^ 0x9E37_79B9_7F4A_7C15);
    (0..count)
        .map(|_| {
            let z = random.word();
            let lanes: i64 = (0..4).map(|lane| (z >> (16 * lane) & 0xFFFF) as i64).sum();
            let value = (lanes - 131_070) as f32 * 2.642_899_8e-6;
            f64::from(if name.contains("ssm_a") { -value.abs() } else { value })
        })
        .collect()
}

/// The largest deviations of a model from its golden results.
#[derive(Debug, Default)]
struct Deviations {
    compared: usize,
    /// Of a result's root mean square, relative.
    rms: f64,
    /// Of single values, in units of the result's root mean square, before the first attention or GELU.
    early: f64,
    /// The same, after it.
    late: f64,
    /// Normalised mean square error of the logits.
    nmse: f64,
}

fn check(folder: &Path, model: &str) -> Deviations {
    let text = std::fs::read_to_string(folder.join(format!("{model}.json"))).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let entries: Vec<Entry> = json["prefill"]["nodes"].as_array().unwrap().iter().map(Entry).collect();

    let mut rig = Rig::default();
    let mut ids: Vec<TensorId> = Vec::new();
    let mut leaves: HashMap<String, TensorId> = HashMap::new();
    let mut order = Vec::new();
    for entry in &entries {
        let id = if let Some(name) = entry.text("leaf") {
            *leaves.entry(name.to_owned()).or_insert_with(|| {
                let (kind, values) = entry.contents();
                rig.leaf(kind, entry.dtype(), entry.four("ne"), &values)
            })
        } else {
            let src: Vec<_> = entry.numbers("src").iter().map(|&i| usize::try_from(i).ok().map(|i| ids[i])).collect();
            let offset = src[0].and_then(|id| rig.graph.tensor(id).view()).map_or(0, |view| view.offset);
            let id = rig.graph.push(entry.op(offset), &src).unwrap();
            rig.graph.set_output(id).unwrap();
            order.push(id);
            id
        };
        let tensor = rig.graph.tensor(id);
        assert_eq!((tensor.dtype(), tensor.ne()), (entry.dtype(), entry.four("ne")), "{model}: {}", entry.0);
        ids.push(id);
    }
    let ran = rig.run(&order);

    let mut worst = Deviations::default();
    let mut rounded = false;
    let mut logits = Vec::new();
    for (entry, &id) in entries.iter().zip(&ids) {
        let tensor = ran.graph.tensor(id);
        rounded |= matches!(tensor.kind(), OpKind::FlashAttn | OpKind::Gelu | OpKind::Geglu);
        if entry.text("name") == Some("result_output") {
            logits = ran.nd(id).all;
        }
        // A cache scaled in place is overwritten later.
        let overwritten = tensor.kind() == OpKind::Scale && entry.is_view();
        let Some(rms) = entry.0["rms"].as_f64().filter(|_| !overwritten) else { continue };
        let all = ran.nd(id).all;
        let found = (all.iter().map(|x| x * x).sum::<f64>() / all.len() as f64).sqrt();
        let name = format!("{model}: {} {:?}", tensor.kind(), entry.text("name"));
        let off = (found - rms).abs() / rms.max(f64::MIN_POSITIVE);
        assert!(off <= 1e-3, "{name}: rms {found} instead of {rms}");
        worst.rms = worst.rms.max(off);
        worst.compared += 1;
        for (index, first) in entry.0["first"].as_array().unwrap().iter().enumerate() {
            let first = first.as_f64().unwrap();
            // Golden values are printed with six digits.
            let printed = 5e-6 * first.abs();
            let off = ((all[index] - first).abs() - printed).max(0.0) / rms.max(f64::MIN_POSITIVE);
            let limit = if rounded { 1e-3 } else { 1e-5 };
            assert!(off <= limit, "{name}: value {index} is {} instead of {first}, rms {rms}", all[index]);
            let deviation = if rounded { &mut worst.late } else { &mut worst.early };
            *deviation = deviation.max(off);
        }
    }

    let bytes = std::fs::read(folder.join(format!("{model}.logits.f32"))).unwrap();
    let expected = bytes.chunks_exact(4).map(|word| f64::from(f32::from_le_bytes(word.try_into().unwrap())));
    let expected: Vec<f64> = expected.take(PREFILL * json["n_vocab"].as_u64().unwrap() as usize).collect();
    assert_eq!(logits.len(), expected.len());
    let error: f64 = logits.iter().zip(&expected).map(|(a, b)| (a - b) * (a - b)).sum();
    worst.nmse = error / expected.iter().map(|x| x * x).sum::<f64>();
    assert!(worst.nmse <= 1e-6, "{model}: logits are off by an NMSE of {}", worst.nmse);
    worst
}

#[test]
fn prefill_gives_the_golden_results() {
    let Some(folder) = golden() else {
        eprintln!("skipped: WGFUSE_GOLDEN is not set");
        return;
    };
    for model in MODELS {
        println!("{model}: {:?}", check(&folder, model));
    }
}
