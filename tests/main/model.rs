//! Models: what loads and what is refused, files, caches, and graphs for every batch.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use wgfuse::gguf::{Gguf, Metadata, Value};
use wgfuse::graph::{DType, LeafKind, OpKind};
use wgfuse::model::{
    BuiltGraph, CacheKind, Dummy, GraphInputs, InputRole, Model, ModelError, TensorSource, TensorSpec, Variant,
    dummy_tokens,
};

const BATCH: GraphInputs = GraphInputs { n_tokens: 4, n_kv: 256, n_outputs: 2, fresh: true, n_ctx: 256 };

/// A model's description, to be changed and loaded.
struct Parts {
    metadata: Metadata,
    tensors: Vec<TensorSpec>,
}

struct NoData;

impl TensorSource for NoData {
    fn data(&self, _tensor: &TensorSpec) -> Option<Cow<'_, [u8]>> {
        None
    }
}

impl Parts {
    fn of(arch: &str, experts: bool) -> Self {
        let dummy = Dummy::new(arch, experts, 1).unwrap();
        Self { metadata: dummy.metadata().clone(), tensors: dummy.tensors().to_vec() }
    }

    /// Replaces the value of a key, or takes the key out.
    fn set(mut self, key: &str, value: Option<Value>) -> Self {
        let mut metadata = Metadata::default();
        for (known, old) in self.metadata.iter().filter(|(known, _)| *known != key) {
            metadata.insert(known, old.clone()).unwrap();
        }
        if let Some(value) = value {
            metadata.insert(key, value).unwrap();
        }
        self.metadata = metadata;
        self
    }

    fn without(mut self, tensor: &str) -> Self {
        assert!(self.tensors.iter().any(|spec| spec.name == tensor), "{tensor}");
        self.tensors.retain(|spec| spec.name != tensor);
        self
    }

    fn with(mut self, tensor: &str, ne: [usize; 4]) -> Self {
        self.tensors.retain(|spec| spec.name != tensor);
        self.tensors.push(TensorSpec { name: tensor.to_owned(), dtype: DType::F32, ne });
        self
    }

    fn load(self) -> Result<Model, ModelError> {
        Model::new(&self.metadata, self.tensors, Arc::new(NoData))
    }

    fn build(self) -> BuiltGraph {
        self.load().unwrap().build(&BATCH).unwrap()
    }

    fn error(self) -> String {
        match self.load() {
            Ok(model) => panic!("{model:?} loads"),
            Err(error) => error.to_string(),
        }
    }
}

fn llama() -> Parts {
    Parts::of("llama", false)
}

fn count(built: &BuiltGraph, kind: OpKind) -> usize {
    built.graph.nodes().iter().filter(|&&id| built.graph.tensor(id).kind() == kind).count()
}

fn models() -> impl Iterator<Item = Model> {
    Variant::all().map(|variant| Dummy::new(variant.arch, variant.experts, 1).unwrap().model().unwrap())
}

#[test]
fn unknown_architectures_suggest_known_ones() {
    let ModelError::UnknownArch { name, nearest } = Dummy::new("lama", false, 1).unwrap_err() else { panic!() };
    assert_eq!((name.as_str(), nearest[0]), ("lama", "llama"));
    let ModelError::UnknownArch { nearest, .. } = Dummy::new("qwen2-moe", true, 1).unwrap_err() else { panic!() };
    assert_eq!(nearest[0], "qwen2moe");
    let error = llama().set("general.architecture", Some("gemma".into())).error();
    assert!(error.starts_with("architecture `gemma` is unknown; the nearest known ones are gemma2, "), "{error}");
}

#[test]
fn architectures_have_the_variants_they_have() {
    assert!(matches!(Dummy::new("gpt2", true, 1), Err(ModelError::Variant { arch: "gpt2", experts: true })));
    assert!(matches!(Dummy::new("qwen2moe", false, 1), Err(ModelError::Variant { arch: "qwen2moe", experts: false })));
}

#[test]
fn missing_keys_are_named() {
    for key in ["llama.block_count", "llama.embedding_length", "llama.attention.layer_norm_rms_epsilon"] {
        let ModelError::MissingKey { key: missing } = llama().set(key, None).load().unwrap_err() else { panic!() };
        assert_eq!(missing, key);
    }
    let ModelError::MissingKey { key } = llama().set("general.architecture", None).load().unwrap_err() else {
        panic!()
    };
    assert_eq!(key, "general.architecture");
    let error = llama().set("llama.feed_forward_length", None).error();
    assert_eq!(error, "layer 0: metadata key `llama.feed_forward_length` is missing");
}

#[test]
fn wrong_values_are_named() {
    let errors = [
        ("general.architecture", 7_u32.into(), "metadata key `general.architecture` is u32 7, expected string"),
        (
            "llama.embedding_length",
            "wide".into(),
            "metadata key `llama.embedding_length` is string \"wide\", expected an integer from 1 to 1048576",
        ),
        (
            "llama.block_count",
            u32::MAX.into(),
            "metadata key `llama.block_count` is u32 4294967295, expected an integer from 1 to 4096",
        ),
        (
            "llama.attention.layer_norm_rms_epsilon",
            1_u32.into(),
            "metadata key `llama.attention.layer_norm_rms_epsilon` is u32 1, expected f32",
        ),
        (
            "llama.attention.head_count",
            vec![2_u32].into(),
            "layer 1: metadata key `llama.attention.head_count` is array of 1 u32, expected an integer from 1 to 1048576",
        ),
        (
            // Longer than any model: each layer would look through the whole list.
            "llama.attention.head_count",
            vec![2_u32; 4097].into(),
            "layer 0: metadata key `llama.attention.head_count` is array of 4097 u32, \
             expected an integer from 1 to 1048576",
        ),
        (
            "llama.rope.scaling.type",
            "yarn".into(),
            "layer 0: metadata key `llama.rope.scaling.type` is string \"yarn\", expected `linear` or `none`",
        ),
    ];
    for (key, value, expected) in errors {
        assert_eq!(llama().set(key, Some(value)).error(), expected);
    }
    let used = Parts::of("llama", true).set("llama.expert_used_count", Some(3_u32.into())).error();
    assert!(used.ends_with("expected at most 2 experts"), "{used}");
    let flags =
        Parts::of("qwen3next", true).set("qwen3next.attention.recurrent_layers", Some(vec![1_u32; 4097].into()));
    assert!(flags.error().contains("is array of 4097 u32, expected a list with a flag for every layer"));
    let heads = Parts::of("qwen3next", true).set("qwen3next.ssm.inner_size", Some(255_u32.into())).error();
    assert!(heads.ends_with("expected 2 heads of 128"), "{heads}");
}

#[test]
fn tensors_are_checked() {
    let name = "blk.1.attn_k.weight";
    assert_eq!(llama().without(name).error(), format!("tensor `{name}` is missing"));
    assert_eq!(
        llama().with(name, [256, 128, 1, 1]).error(),
        format!("tensor `{name}` has shape [256, 128, 1, 1], expected [256, 256, 1, 1]")
    );
    assert_eq!(
        llama().with("blk.0.attn_q_norm.weight", [128, 1, 1, 1]).error(),
        "tensor `blk.0.attn_q_norm.weight` does not belong to a model of architecture `llama`"
    );
    // A bias may be left out only where the row says so.
    assert_eq!(Parts::of("gpt2", false).without("blk.0.ffn_up.bias").error(), "tensor `blk.0.ffn_up.bias` is missing");
    let bare = llama().without("blk.0.ffn_up.bias").without("blk.0.attn_q.scale").without("rope_freqs.weight").build();
    let full = llama().build();
    assert_eq!(count(&full, OpKind::Add) - count(&bare, OpKind::Add), 1);
    assert_eq!(count(&full, OpKind::Mul) - count(&bare, OpKind::Mul), 1);
    assert!(matches!(llama().load().unwrap().data("nothing"), Err(ModelError::UnknownTensor { .. })));
}

#[test]
fn types_that_an_operation_does_not_take_name_the_layer() {
    let mut parts = llama();
    parts.tensors.iter_mut().find(|spec| spec.name == "blk.1.attn_k.weight").unwrap().dtype = DType::I32;
    let error = parts.load().unwrap().build(&BATCH).unwrap_err().to_string();
    assert!(error.starts_with("layer 1: MUL_MAT: source 0 is i32"), "{error}");
}

#[test]
fn a_file_without_an_output_matrix_has_the_embedding() {
    let built = llama().without("output.weight").build();
    assert!(built.graph.find("output.weight").is_none());
    let product = built.graph.tensor(built.logits);
    assert_eq!(product.src(0), built.graph.find("token_embd.weight"));
}

#[test]
fn projections_may_be_kept_joined_or_split() {
    let mut joined = Parts::of("phi2", false);
    for layer in 0..2 {
        for part in ["q", "k", "v"] {
            for suffix in ["weight", "bias", "scale", "input_scale"] {
                joined = joined.without(&format!("blk.{layer}.attn_{part}.{suffix}"));
            }
        }
        joined = joined.with(&format!("blk.{layer}.attn_qkv.weight"), [256, 768, 1, 1]);
        joined = joined.with(&format!("blk.{layer}.attn_qkv.bias"), [768, 1, 1, 1]);
    }
    let split = Parts::of("phi2", false).build();
    assert_eq!(count(&split, OpKind::MulMat) - count(&joined.build(), OpKind::MulMat), 2 * 2);

    let mut split = Parts::of("qwen3next", true);
    for layer in 0..2 {
        split = split.without(&format!("blk.{layer}.ffn_gate_up_exps.weight"));
        split = split.with(&format!("blk.{layer}.ffn_gate_exps.weight"), [256, 384, 2, 1]);
        split = split.with(&format!("blk.{layer}.ffn_up_exps.weight"), [256, 384, 2, 1]);
    }
    let joined = Parts::of("qwen3next", true).build();
    assert_eq!(count(&split.build(), OpKind::MulMatId) - count(&joined, OpKind::MulMatId), 2);
}

#[test]
fn heads_of_values_share_heads_of_keys() {
    let built = Parts::of("qwen3next", true)
        .set("qwen3next.ssm.group_count", Some(1_u32.into()))
        .with("blk.0.attn_qkv.weight", [256, 512, 1, 1])
        .with("blk.0.ssm_conv1d.weight", [4, 512, 1, 1])
        .with("blk.0.ssm_in.weight", [256, 768, 1, 1])
        .build();
    let nodes = built.graph.nodes().iter().map(|&id| built.graph.tensor(id));
    let delta = nodes.into_iter().find(|t| t.kind() == OpKind::GatedDeltaNet).unwrap();
    let shape = |slot| built.graph.tensor(delta.src(slot).unwrap()).ne();
    assert_eq!([shape(0), shape(1), shape(2)], [[128, 2, 4, 1]; 3]);
}

#[test]
fn any_number_of_experts_is_summed() {
    let with = |used: u32| {
        let mut parts = Parts::of("llama", true)
            .set("llama.expert_count", Some(4_u32.into()))
            .set("llama.expert_used_count", Some(used.into()));
        for spec in &mut parts.tensors {
            match spec.ne {
                [k, m, 2, 1] => spec.ne = [k, m, 4, 1],
                [2, 1, 1, 1] => spec.ne = [4, 1, 1, 1],
                [256, 2, 1, 1] => spec.ne = [256, 4, 1, 1],
                _ => {}
            }
        }
        parts.build()
    };
    let (one, two, four) = (with(1), with(2), with(4));
    assert_eq!(count(&four, OpKind::Add) - count(&two, OpKind::Add), 2 * 2);
    assert_eq!(count(&two, OpKind::Add) - count(&one, OpKind::Add), 2);
    assert_eq!((count(&one, OpKind::Cont), count(&two, OpKind::Cont)), (2, 0));
}

#[test]
fn layers_are_picked_by_list_or_by_interval() {
    let windows = |parts: Parts| -> Vec<Option<u32>> {
        let roles = parts.build().inputs.into_iter().map(|input| input.role);
        roles.filter_map(|role| if let InputRole::Mask { window } = role { Some(window) } else { None }).collect()
    };
    let gemma = |value| Parts::of("gemma2", false).set("gemma2.attention.sliding_window_pattern", value);
    assert_eq!(windows(gemma(None)), [Some(32), None]);
    assert_eq!(windows(gemma(Some(vec![0_u32, 1].into()))), [None, Some(32)]);
    assert_eq!(windows(gemma(Some(vec![true, true].into()))), [Some(32)]);
    let short = gemma(Some(vec![true].into())).error();
    assert!(short.ends_with("is array of 1 bool, expected a list with a flag for every layer"), "{short}");

    let qwen = |interval: u32| {
        Parts::of("qwen3next", true)
            .set("qwen3next.attention.recurrent_layers", None)
            .set("qwen3next.full_attention_interval", Some(interval.into()))
    };
    assert!(qwen(2).load().is_ok());
    assert_eq!(qwen(1).error(), "tensor `blk.0.attn_q.weight` is missing");
}

#[test]
fn caches_are_those_of_the_graphs() {
    for model in models() {
        let built = model.build(&BATCH).unwrap();
        let leaves = built.graph.leaves().iter().map(|&id| built.graph.tensor(id));
        let mut caches: Vec<_> = leaves
            .filter(|leaf| leaf.leaf() == Some(LeafKind::Cache))
            .map(|leaf| (leaf.name().to_owned(), leaf.dtype(), leaf.ne()))
            .collect();
        caches.sort();
        let mut specs: Vec<_> = model.caches(256).into_iter().map(|spec| (spec.name, spec.dtype, spec.ne)).collect();
        specs.sort();
        assert_eq!(caches, specs, "{model:?}");
    }
    let hybrid = Dummy::new("qwen3next", true, 1).unwrap().model().unwrap();
    let sizes: Vec<_> = hybrid.caches(64).into_iter().map(|spec| (spec.name, spec.kind, spec.dtype, spec.ne)).collect();
    assert_eq!(
        sizes,
        [
            ("cache_r_l0".to_owned(), CacheKind::State, DType::F32, [2304, 1, 1, 1]),
            ("cache_s_l0".to_owned(), CacheKind::State, DType::F32, [32768, 1, 1, 1]),
            ("cache_k_l1".to_owned(), CacheKind::Rows, DType::F16, [256, 64, 1, 1]),
            ("cache_v_l1".to_owned(), CacheKind::Rows, DType::F16, [256, 64, 1, 1]),
        ]
    );
}

#[test]
fn leaves_are_weights_caches_and_each_input_once() {
    for model in models() {
        let built = model.build(&BATCH).unwrap();
        let names: HashSet<&str> = built.graph.leaves().iter().map(|&id| built.graph.tensor(id).name()).collect();
        assert_eq!(names.len(), built.graph.leaves().len(), "{model:?}");
        let weights = built.graph.leaves().iter().map(|&id| built.graph.tensor(id));
        for leaf in weights.filter(|leaf| leaf.leaf() == Some(LeafKind::Weight)) {
            let spec = model.tensors().iter().find(|spec| spec.name == leaf.name()).unwrap();
            assert_eq!((spec.dtype, spec.ne), (leaf.dtype(), leaf.ne()));
        }
        let inputs = built.graph.leaves().iter().filter(|&&id| built.graph.tensor(id).leaf() == Some(LeafKind::Input));
        let inputs: HashSet<_> = inputs.copied().collect();
        assert_eq!(inputs, built.inputs.iter().map(|input| input.id).collect());
        assert_eq!(inputs.len(), built.inputs.len());
        let roles: HashSet<InputRole> = built.inputs.iter().map(|input| input.role).collect();
        assert_eq!(roles.len(), built.inputs.len());
    }
}

#[test]
fn every_batch_has_a_graph() {
    for model in models() {
        for (n_tokens, n_outputs) in [(1, 0), (1, 1), (2, 1), (7, 0), (7, 7), (200, 3)] {
            for (n_kv, n_ctx, fresh) in [(1, 200, true), (200, 200, false), (64, 256, false)] {
                let built = model.build(&GraphInputs { n_tokens, n_kv, n_outputs, fresh, n_ctx }).unwrap();
                assert_eq!(built.graph.tensor(built.logits).ne(), [128, n_outputs, 1, 1]);
            }
        }
    }
}

#[test]
fn batches_that_contradict_themselves_are_refused() {
    let model = llama().load().unwrap();
    let wrong = [
        GraphInputs { n_tokens: 0, n_outputs: 0, ..BATCH },
        GraphInputs { n_tokens: 257, ..BATCH },
        GraphInputs { n_kv: 0, ..BATCH },
        GraphInputs { n_kv: 257, ..BATCH },
        GraphInputs { n_outputs: 5, ..BATCH },
        GraphInputs { n_tokens: usize::MAX, n_kv: usize::MAX, n_ctx: usize::MAX, ..BATCH },
    ];
    for batch in wrong {
        assert!(matches!(model.build(&batch), Err(ModelError::Batch { .. })), "{batch:?}");
    }
    for model in models() {
        let n = i32::MAX as usize;
        // Too large for any memory, but not for a description.
        drop(model.build(&GraphInputs { n_tokens: n, n_kv: n, n_outputs: n, n_ctx: n, fresh: true }));
    }
    // Attention turns any position, a table has only so many.
    let longer = GraphInputs { n_ctx: 512, ..BATCH };
    assert!(model.build(&longer).is_ok());
    let learned = Parts::of("gpt2", false).load().unwrap().build(&longer);
    assert!(matches!(learned, Err(ModelError::Positions { n_ctx: 512, learned: 256 })));
}

#[test]
fn files_give_the_same_model() {
    for variant in Variant::all() {
        let dummy = Dummy::new(variant.arch, variant.experts, 7).unwrap();
        let model = dummy.model().unwrap();
        let gguf = Gguf::from_bytes(dummy.to_gguf().unwrap()).unwrap();
        let loaded = Model::from_gguf(gguf).unwrap();
        assert_eq!(
            (loaded.arch(), loaded.hparams(), loaded.tensors()),
            (model.arch(), model.hparams(), model.tensors())
        );
        assert_eq!(loaded.build(&BATCH).unwrap(), model.build(&BATCH).unwrap());
        for spec in model.tensors() {
            assert!(loaded.data(&spec.name).unwrap() == model.data(&spec.name).unwrap(), "{}", spec.name);
        }
    }
}

#[test]
fn a_written_file_is_the_one_in_memory() {
    let path = std::env::temp_dir().join(format!("wgfuse-dummy-{}.gguf", std::process::id()));
    let dummy = Dummy::new("gpt2", false, 1).unwrap();
    dummy.write_gguf(&path).unwrap();
    let written = std::fs::read(&path);
    std::fs::remove_file(&path).unwrap();
    assert!(written.unwrap() == dummy.to_gguf().unwrap());
}

/// Weights by hand from the formula: FNV-1a of the name, splitmix64, the sum of four 16-bit numbers.
#[test]
fn weights_follow_from_the_seed() {
    let floats = |seed: u64, tensor: &str| -> Vec<f32> {
        let model = Dummy::new("qwen3next", true, seed).unwrap().model().unwrap();
        let data = model.data(tensor).unwrap().into_owned();
        data.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    };
    let embedding = floats(1, "token_embd.weight");
    assert_eq!(embedding.len(), 256 * 128);
    assert_eq!(
        embedding[93 * 256..][..4].iter().map(|x| format!("{x:.6}")).collect::<Vec<_>>(),
        ["0.148425", "-0.034101", "-0.093466", "0.117263"]
    );
    assert_ne!(embedding, floats(2, "token_embd.weight"));
    assert_eq!(embedding, floats(1, "token_embd.weight"));
    assert!(floats(3, "blk.0.ssm_a").iter().all(|&x| x < 0.0));
}

#[test]
fn tokens_follow_from_the_seed() {
    let tokens = dummy_tokens(1, 1, 1000, 128);
    assert_eq!(tokens[..4], [93, 44, 57, 39]);
    assert!(tokens.iter().all(|token| (0..128).contains(token)));
    assert_ne!(tokens, dummy_tokens(1, 2, 1000, 128));
    assert_eq!(dummy_tokens(u64::MAX, u64::MAX, 3, 0), [0; 3]);
}

#[test]
fn no_value_of_any_key_panics() {
    let values: Vec<Value> = vec![
        0_u32.into(),
        1_u32.into(),
        3_u32.into(),
        (1_u32 << 20).into(),
        u32::MAX.into(),
        u64::MAX.into(),
        (-1_i32).into(),
        f32::NAN.into(),
        0.0_f32.into(),
        true.into(),
        "".into(),
        Vec::<u32>::new().into(),
        vec![0_u32, u32::MAX].into(),
        vec![true, false].into(),
    ];
    for variant in Variant::all() {
        let parts = || Parts::of(variant.arch, variant.experts);
        let keys: Vec<String> = parts().metadata.iter().map(|(key, _)| key.to_owned()).collect();
        for key in keys {
            for value in values.iter().cloned().map(Some).chain([None]) {
                if let Ok(model) = parts().set(&key, value).load() {
                    // Whatever comes of it is a result or an error.
                    drop(model.build(&BATCH));
                    drop(model.caches(usize::MAX));
                }
            }
        }
    }
}

#[test]
fn no_shape_panics() {
    for variant in Variant::all() {
        let parts = Parts::of(variant.arch, variant.experts);
        for spec in parts.tensors {
            for n in [0, 1, usize::MAX] {
                let other = Parts::of(variant.arch, variant.experts).with(&spec.name, [n; 4]);
                assert!(other.load().is_err() || spec.ne == [n; 4], "{}", spec.name);
            }
        }
    }
}
