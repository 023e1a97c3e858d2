//! Dummy models: small models of every architecture, made of nothing but a seed.

use super::arch::{self, ARCHS, Arch};
use super::blocks::Norm;
use super::hparams::Facts;
use super::structure::Structure;
use super::{Model, ModelError, TensorSource, TensorSpec};
use crate::gguf::{Array, GgufWriter, Metadata, Value};
use crate::graph::DType;
use crate::quant;
use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A metadata value of dummies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lit {
    /// The key is left out.
    Absent,
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(&'static str),
    U32s(&'static [u32]),
    I32s(&'static [i32]),
    /// As many of one value.
    F32Times(f32, usize),
    I32Times(i32, usize),
    /// One value for each layer.
    F32Layers(f32),
    NoStrings,
    /// The architecture's name.
    Arch,
    /// The tokens' names.
    Tokens,
    /// A value in models with experts, else 0.
    Experts(u32),
    /// [`EPS`] for this norm's models, else 0.
    Eps(Norm),
}

const N_VOCAB: u32 = 128;
const N_LAYER: u32 = 2;
const EPS: f32 = 1e-5;

/// How long files make lists that are not for layers.
const LIST: usize = 512;

/// The metadata of dummies, in the order of a file. Keys with a dot in front belong to the architecture.
const KEYS: &[(&str, Lit)] = &[
    ("general.architecture", Lit::Arch),
    ("general.name", Lit::Str("n/a")),
    (".vocab_size", Lit::U32(N_VOCAB)),
    (".context_length", Lit::U32(256)),
    (".embedding_length", Lit::U32(256)),
    (".block_count", Lit::U32(N_LAYER)),
    (".leading_dense_block_count", Lit::U32(0)),
    (".feed_forward_length", Lit::U32(384)),
    (".expert_feed_forward_length", Lit::U32(0)),
    (".expert_latent_length", Lit::U32(0)),
    (".expert_shared_feed_forward_length", Lit::U32(0)),
    (".expert_chunk_feed_forward_length", Lit::U32(0)),
    (".swiglu_clamp_exp", Lit::F32Layers(0.0)),
    (".swiglu_clamp_shexp", Lit::F32Layers(0.0)),
    (".use_parallel_residual", Lit::Bool(false)),
    (".expert_count", Lit::Experts(2)),
    (".expert_used_count", Lit::Experts(2)),
    (".expert_shared_count", Lit::U32(0)),
    (".expert_group_count", Lit::U32(0)),
    (".expert_group_used_count", Lit::U32(0)),
    (".expert_weights_scale", Lit::F32(0.0)),
    (".expert_weights_norm", Lit::Bool(false)),
    (".expert_gating_func", Lit::U32(0)),
    (".expert_group_scale", Lit::F32(0.05)),
    (".experts_per_group", Lit::U32(0)),
    (".moe_every_n_layers", Lit::U32(0)),
    (".nextn_predict_layers", Lit::U32(0)),
    (".n_deepstack_layers", Lit::U32(0)),
    (".deepstack_mapping", Lit::I32Times(-1, LIST)),
    (".pooling_type", Lit::U32(u32::MAX)),
    (".logit_scale", Lit::F32(0.0)),
    (".decoder_start_token_id", Lit::I32(-1)),
    (".decoder_block_count", Lit::U32(0)),
    (".attn_logit_softcapping", Lit::F32(50.0)),
    (".router_logit_softcapping", Lit::F32(30.0)),
    (".final_logit_softcapping", Lit::F32(30.0)),
    (".swin_norm", Lit::Bool(false)),
    (".rescale_every_n_layers", Lit::U32(0)),
    (".time_mix_extra_dim", Lit::U32(0)),
    (".time_decay_extra_dim", Lit::U32(0)),
    (".residual_scale", Lit::F32(0.0)),
    (".embedding_scale", Lit::F32(0.0)),
    (".hrm.layers_per_stack", Lit::U32(0)),
    (".hrm.h_cycles", Lit::U32(0)),
    (".hrm.l_cycles", Lit::U32(0)),
    (".hrm.prefix_lm", Lit::Bool(false)),
    (".token_shift_count", Lit::U32(2)),
    (".interleave_moe_layer_step", Lit::U32(0)),
    (".attention.head_count", Lit::U32(2)),
    (".attention.head_count_kv", Lit::U32(2)),
    (".attention.max_alibi_bias", Lit::F32(0.0)),
    (".attention.clamp_kqv", Lit::F32(0.0)),
    (".attention.key_length", Lit::U32(128)),
    (".attention.value_length", Lit::U32(128)),
    (".attention.layer_norm_epsilon", Lit::Eps(Norm::Layer)),
    (".attention.layer_norm_rms_epsilon", Lit::Eps(Norm::Rms)),
    (".attention.group_norm_epsilon", Lit::F32(0.0)),
    (".attention.group_norm_groups", Lit::U32(0)),
    (".attention.causal", Lit::Bool(true)),
    (".attention.q_lora_rank", Lit::U32(0)),
    (".attention.kv_lora_rank", Lit::U32(0)),
    (".attention.decay_lora_rank", Lit::U32(0)),
    (".attention.iclr_lora_rank", Lit::U32(0)),
    (".attention.value_residual_mix_lora_rank", Lit::U32(0)),
    (".attention.gate_lora_rank", Lit::U32(0)),
    (".attention.relative_buckets_count", Lit::U32(0)),
    (".attention.rope_pattern", Lit::U32(1)),
    (".attention.sliding_window", Lit::U32(0)),
    (".attention.sliding_window_pattern", Lit::Absent),
    (".attention.scale", Lit::F32(0.0)),
    (".attention.output_scale", Lit::F32(0.0)),
    (".attention.value_scale", Lit::F32(0.0)),
    (".attention.temperature_length", Lit::U32(0)),
    (".attention.temperature_scale", Lit::F32(0.0)),
    (".attention.key_length_mla", Lit::U32(0)),
    (".attention.value_length_mla", Lit::U32(0)),
    (".attention.key_length_swa", Lit::U32(128)),
    (".attention.value_length_swa", Lit::U32(128)),
    (".attention.key_length_mla_swa", Lit::U32(0)),
    (".attention.value_length_mla_swa", Lit::U32(0)),
    (".attention.kv_lora_rank_swa", Lit::U32(0)),
    (".attention.indexer.head_count", Lit::U32(0)),
    (".attention.indexer.key_length", Lit::U32(0)),
    (".attention.indexer.top_k", Lit::U32(0)),
    (".attention.indexer.block_size", Lit::U32(0)),
    (".attention.indexer.kpool", Lit::U32(0)),
    (".attention.indexer.kpool_select_tail", Lit::Bool(true)),
    (".attention.indexer.local_blocks", Lit::U32(0)),
    (".attention.indexer.types", Lit::U32(0)),
    (".attention.recurrent_layers", Lit::U32(0)),
    (".attention.output_group_count", Lit::U32(0)),
    (".attention.output_lora_rank", Lit::U32(0)),
    (".attention.compress_rope_freq_base", Lit::F32(0.0)),
    (".attention.compress_ratios", Lit::U32(0)),
    (".hyper_connection.count", Lit::U32(0)),
    (".hyper_connection.sinkhorn_iterations", Lit::U32(0)),
    (".hyper_connection.epsilon", Lit::F32(0.0)),
    (".hyper_connection.magnitude", Lit::F32(0.0)),
    (".hash_layer_count", Lit::U32(0)),
    (".hyper_connection.low_rank", Lit::U32(0)),
    (".rope.dimension_count", Lit::U32(128)),
    (".rope.dimension_count_swa", Lit::U32(128)),
    (".rope.dimension_sections", Lit::I32s(&[0, 0, 0, 0])),
    (".rope.freq_base", Lit::F32(10_000.0)),
    (".rope.freq_base_swa", Lit::F32(10_000.0)),
    (".rope.scaling.type", Lit::Str("linear")),
    (".rope.scaling.factor", Lit::F32(0.0)),
    (".rope.scaling.attn_factor", Lit::F32(1.0)),
    (".rope.scaling.original_context_length", Lit::U32(256)),
    (".rope.scaling.finetuned", Lit::Bool(false)),
    (".rope.scaling.yarn_log_multiplier", Lit::F32(0.0)),
    (".rope.scaling.yarn_ext_factor", Lit::F32(-1.0)),
    (".rope.scaling.yarn_attn_factor", Lit::F32(1.0)),
    (".rope.scaling.yarn_beta_fast", Lit::F32(32.0)),
    (".rope.scaling.yarn_beta_slow", Lit::F32(1.0)),
    (".ssm.inner_size", Lit::U32(0)),
    (".ssm.conv_kernel", Lit::U32(0)),
    (".ssm.state_size", Lit::U32(0)),
    (".ssm.time_step_rank", Lit::U32(0)),
    (".ssm.group_count", Lit::U32(0)),
    (".ssm.dt_b_c_rms", Lit::Bool(false)),
    (".kda.head_dim", Lit::U32(0)),
    (".kda.safe_gate", Lit::Bool(false)),
    (".kda.gate_lower_bound", Lit::F32(f32::NEG_INFINITY)),
    (".wkv.head_size", Lit::U32(0)),
    ("tokenizer.ggml.model", Lit::Str("test")),
    ("tokenizer.ggml.tokens", Lit::Tokens),
    ("tokenizer.ggml.token_type", Lit::I32Times(1, N_VOCAB as usize)),
    ("tokenizer.ggml.token_type_count", Lit::U32(0)),
    ("tokenizer.ggml.scores", Lit::F32Times(0.0, N_VOCAB as usize)),
    ("tokenizer.ggml.merges", Lit::NoStrings),
    ("tokenizer.ggml.add_bos_token", Lit::Bool(false)),
    ("tokenizer.ggml.add_eos_token", Lit::Bool(false)),
    ("tokenizer.ggml.add_sep_token", Lit::Bool(false)),
    ("tokenizer.ggml.add_space_prefix", Lit::Bool(false)),
    ("tokenizer.ggml.remove_extra_whitespaces", Lit::Bool(false)),
    (".posnet.embedding_length", Lit::U32(0)),
    (".posnet.block_count", Lit::U32(0)),
    (".convnext.embedding_length", Lit::U32(0)),
    (".convnext.block_count", Lit::U32(0)),
    (".classifier.output_labels", Lit::NoStrings),
    (".shortconv.l_cache", Lit::U32(0)),
    ("xielu.alpha_n", Lit::F32Times(0.0, LIST)),
    ("xielu.alpha_p", Lit::F32Times(0.0, LIST)),
    ("xielu.beta", Lit::F32Times(0.0, LIST)),
    ("xielu.eps", Lit::F32Times(0.0, LIST)),
    (".attn_res.block_size", Lit::U32(0)),
    (".activation.situ_beta", Lit::F32(1.0)),
    (".activation.situ_linear_beta", Lit::F32(0.0)),
    (".dense_2_feat_in", Lit::U32(0)),
    (".dense_2_feat_out", Lit::U32(0)),
    (".dense_3_feat_in", Lit::U32(0)),
    (".dense_3_feat_out", Lit::U32(0)),
];

/// One of the models that an architecture has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Variant {
    /// The architecture's name in metadata.
    pub arch: &'static str,
    /// Whether it has experts.
    pub experts: bool,
}

impl Variant {
    /// Every variant of every architecture.
    pub fn all() -> impl Iterator<Item = Self> {
        ARCHS.iter().flat_map(|row| {
            let (dense, experts) = row.variants();
            let variant = |experts| Self { arch: row.name, experts };
            dense.then(|| variant(false)).into_iter().chain(experts.then(|| variant(true)))
        })
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.arch, if self.experts { "moe" } else { "dense" })
    }
}

/// A small model whose weights follow from a seed.
#[derive(Clone, Debug)]
pub struct Dummy {
    seed: u64,
    metadata: Metadata,
    tensors: Vec<TensorSpec>,
}

impl Dummy {
    /// The dummy of an architecture, with experts or without.
    ///
    /// # Errors
    /// [`ModelError::UnknownArch`], and [`ModelError::Variant`] where the architecture has no such model.
    pub fn new(arch: &str, experts: bool, seed: u64) -> Result<Self, ModelError> {
        let row = arch::find(arch)?;
        let (dense, moe) = row.variants();
        if !(if experts { moe } else { dense }) {
            return Err(ModelError::Variant { arch: row.name, experts });
        }
        let metadata = metadata(row, experts)?;
        let structure = Structure::read(row, &Facts::of_dummy(row.name, &metadata))?;
        let tensors = structure.wants().all();
        Ok(Self { seed, metadata, tensors })
    }

    /// The metadata, in the order of a file.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors, in the order of a file.
    pub fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    /// The model.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn model(&self) -> Result<Model, ModelError> {
        Model::new(&self.metadata, self.tensors.clone(), Arc::new(Seeded(self.seed)))
    }

    /// The model as a file in memory.
    ///
    /// # Errors
    /// [`ModelError::Gguf`].
    pub fn to_gguf(&self) -> Result<Vec<u8>, ModelError> {
        let mut file = Vec::new();
        self.writer()?.write_to(&mut file)?;
        Ok(file)
    }

    /// Writes the model to a file.
    ///
    /// # Errors
    /// [`ModelError::Gguf`].
    pub fn write_gguf(&self, path: impl AsRef<Path>) -> Result<(), ModelError> {
        Ok(self.writer()?.write_file(path)?)
    }

    fn writer(&self) -> Result<GgufWriter<'static>, ModelError> {
        let mut writer = GgufWriter::new();
        for (key, value) in self.metadata.iter() {
            writer.set(key, value.clone())?;
        }
        for spec in &self.tensors {
            let n_dims = spec.ne.iter().rposition(|&n| n != 1).map_or(1, |last| last + 1);
            let dims: Vec<u64> = spec.ne.iter().take(n_dims).map(|&n| n as u64).collect();
            writer.tensor(&spec.name, spec.dtype, &dims, weights(spec, self.seed))?;
        }
        Ok(writer)
    }
}

/// The metadata of a dummy.
fn metadata(row: &Arch, experts: bool) -> Result<Metadata, ModelError> {
    let mut metadata = Metadata::default();
    for &(key, lit) in KEYS {
        let (name, lit) = match key.strip_prefix('.') {
            Some(own) => {
                let other = row.tiny.iter().find(|(key, _)| *key == own).map(|&(_, lit)| lit);
                (format!("{}.{own}", row.name), other.unwrap_or(lit))
            }
            None => (key.to_owned(), lit),
        };
        if let Some(value) = value(lit, row, experts) {
            metadata.insert(&name, value)?;
        }
    }
    Ok(metadata)
}

fn value(lit: Lit, row: &Arch, experts: bool) -> Option<Value> {
    Some(match lit {
        Lit::Absent => return None,
        Lit::U32(n) => n.into(),
        Lit::I32(n) => n.into(),
        Lit::F32(x) => x.into(),
        Lit::Bool(flag) => flag.into(),
        Lit::Str(text) => text.into(),
        Lit::U32s(items) => items.to_vec().into(),
        Lit::I32s(items) => items.to_vec().into(),
        Lit::F32Times(x, n) => vec![x; n].into(),
        Lit::I32Times(x, n) => vec![x; n].into(),
        Lit::F32Layers(x) => vec![x; N_LAYER as usize].into(),
        Lit::NoStrings => Value::Array(Array::String(Vec::new())),
        Lit::Arch => row.name.into(),
        Lit::Tokens => (0..N_VOCAB).map(|token| format!("tok_{token}")).collect::<Vec<_>>().into(),
        Lit::Experts(n) => if experts { n } else { 0 }.into(),
        Lit::Eps(norm) => if row.norm == norm { EPS } else { 0.0 }.into(),
    })
}

/// Tensors by the formula, for a seed.
#[derive(Debug)]
struct Seeded(u64);

impl TensorSource for Seeded {
    fn data(&self, tensor: &TensorSpec) -> Option<Cow<'_, [u8]>> {
        Some(weights(tensor, self.0).into())
    }
}

/// The state advances by the golden ratio's share of 2^64 (Weyl sequence of splitmix64).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finaliser of splitmix64 (Steele, Lea and Flood 2014).
const fn mix64(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// 64-bit FNV-1a.
fn fnv1a64(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The bytes of a dummy's tensor: nearly normal with a deviation of 0.1, in the order of memory. Integers are zero,
/// and so are quantized formats that cannot be made from f32.
fn weights(tensor: &TensorSpec, seed: u64) -> Vec<u8> {
    /// Brings the sum of four 16-bit numbers, less its mean, to a deviation of 0.1.
    const UNIT: f32 = 2.642_899_8e-6;
    const MEAN: i32 = 131_070;
    let elements: usize = tensor.ne.iter().product();
    let state = fnv1a64(&tensor.name) ^ seed.wrapping_mul(GOLDEN);
    // What a state decays by must not grow.
    let decays = tensor.name.contains("ssm_a");
    let values = (1..=elements as u64).map(|i| {
        let z = mix64(state.wrapping_add(i.wrapping_mul(GOLDEN)));
        let sum: i32 = [z, z >> 16, z >> 32, z >> 48].map(|lane| i32::from(lane as u16)).iter().sum();
        let value = (sum - MEAN) as f32 * UNIT;
        if decays { -value.abs() } else { value }
    });
    match tensor.dtype {
        DType::F32 => values.flat_map(f32::to_le_bytes).collect(),
        DType::F16 => values.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect(),
        DType::BF16 => values.flat_map(|value| half::bf16::from_f32(value).to_le_bytes()).collect(),
        DType::I32 => vec![0; elements * 4],
        DType::I64 => vec![0; elements * 8],
        DType::Block(format) => {
            let values: Vec<f32> = values.collect();
            let mut blocks = vec![0; elements / format.elements() * format.bytes()];
            // Formats without a quantizer stay zero.
            let _ = quant::quantize(format, &values, &mut blocks);
            blocks
        }
    }
}

/// `n` tokens that follow from a seed; different `stream`s are different texts.
pub fn dummy_tokens(seed: u64, stream: u64, n: usize, n_vocab: usize) -> Vec<i32> {
    let start = seed.wrapping_mul(1_000_003).wrapping_add(stream.wrapping_mul(7919));
    let vocabulary = (n_vocab as u64).clamp(1, i32::MAX as u64);
    (0..n as u64).map(|i| (mix64(start.wrapping_add(i)) % vocabulary) as i32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_differ_in_known_keys() {
        for row in ARCHS {
            for (key, _) in row.tiny {
                assert!(KEYS.iter().any(|(known, _)| known.strip_prefix('.') == Some(key)), "{}: {key}", row.name);
            }
        }
    }

    #[test]
    fn every_tensor_has_a_place_in_files() {
        for variant in Variant::all() {
            let row = arch::find(variant.arch).unwrap();
            let metadata = metadata(row, variant.experts).unwrap();
            let structure = Structure::read(row, &Facts::of_dummy(row.name, &metadata)).unwrap();
            assert_eq!(structure.wants().without_place(), [""; 0], "{variant}");
        }
    }

    #[test]
    fn narrow_types_round_and_integers_are_zero() {
        let bytes = |dtype| weights(&TensorSpec { name: "w".to_owned(), dtype, ne: [3, 1, 1, 1] }, 1);
        let wide: Vec<f32> = bytes(DType::F32).as_chunks::<4>().0.iter().map(|&x| f32::from_le_bytes(x)).collect();
        let half = bytes(DType::F16);
        let half = half.as_chunks::<2>().0.iter().map(|&x| half::f16::from_le_bytes(x));
        assert!(half.eq(wide.iter().map(|&x| half::f16::from_f32(x))));
        let brain = bytes(DType::BF16);
        let brain = brain.as_chunks::<2>().0.iter().map(|&x| half::bf16::from_le_bytes(x));
        assert!(brain.eq(wide.iter().map(|&x| half::bf16::from_f32(x))));
        assert_eq!(bytes(DType::I32), [0; 12]);
        assert_eq!(bytes(DType::I64), [0; 24]);
    }
}
