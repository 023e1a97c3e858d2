//! Which tensors a model consists of: names, shapes and the order in which files keep them.
//!
//! Blocks state what they want in a [`Wants`]; dummies are made from that list and files are checked against it, so the
//! two cannot disagree.

use super::ModelError;
use crate::graph::DType;
use std::collections::{HashMap, HashSet};

/// A tensor of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name in files and of the graph's leaf.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub ne: [usize; 4],
}

macro_rules! stems {
    ($($stem:ident = $name:literal,)+) => {
        /// What a tensor is for; with a [`Part`] and a layer it makes a name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Stem { $($stem,)+ }

        impl Stem {
            const fn name(self) -> &'static str {
                match self { $(Self::$stem => $name,)+ }
            }
        }
    };
}

stems! {
    TokenEmbd = "token_embd",
    PositionEmbd = "position_embd",
    OutputNorm = "output_norm",
    Output = "output",
    AttnNorm = "attn_norm",
    AttnNorm2 = "attn_norm_2",
    AttnQNorm = "attn_q_norm",
    AttnKNorm = "attn_k_norm",
    PostAttentionNorm = "post_attention_norm",
    AttnQ = "attn_q",
    AttnK = "attn_k",
    AttnV = "attn_v",
    AttnOutput = "attn_output",
    AttnQkv = "attn_qkv",
    AttnGate = "attn_gate",
    FfnNorm = "ffn_norm",
    PostFfwNorm = "post_ffw_norm",
    FfnGate = "ffn_gate",
    FfnDown = "ffn_down",
    FfnUp = "ffn_up",
    FfnGateInp = "ffn_gate_inp",
    FfnGateExps = "ffn_gate_exps",
    FfnDownExps = "ffn_down_exps",
    FfnUpExps = "ffn_up_exps",
    FfnGateUpExps = "ffn_gate_up_exps",
    FfnGateInpShexp = "ffn_gate_inp_shexp",
    FfnGateShexp = "ffn_gate_shexp",
    FfnDownShexp = "ffn_down_shexp",
    FfnUpShexp = "ffn_up_shexp",
    RopeFreqs = "rope_freqs",
    SsmNorm = "ssm_norm",
    SsmIn = "ssm_in",
    SsmDt = "ssm_dt",
    SsmOut = "ssm_out",
    SsmConv1d = "ssm_conv1d",
    SsmA = "ssm_a",
    SsmBa = "ssm_ba",
}

/// Which of the tensors of a [`Stem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Weight,
    Bias,
    /// A factor on the product with the weight: one for all, or one per expert.
    Scale,
    /// A factor for kernels that quantize their input; we have none.
    InputScale,
    /// The only tensor of its stem, which has no suffix.
    Bare,
}

impl Part {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Weight => ".weight",
            Self::Bias => ".bias",
            Self::Scale => ".scale",
            Self::InputScale => ".input_scale",
            Self::Bare => "",
        }
    }
}

/// The order in which files keep the tensors of the model, and then of each layer.
const FILE_ORDER: &[(Stem, Part)] = {
    use Part::{Bare, Bias, InputScale, Scale, Weight};
    use Stem::*;
    &[
        (TokenEmbd, Weight),
        (PositionEmbd, Weight),
        (OutputNorm, Weight),
        (OutputNorm, Bias),
        (Output, Weight),
        (Output, Bias),
        (AttnNorm, Weight),
        (AttnNorm, Bias),
        (AttnNorm2, Weight),
        (AttnNorm2, Bias),
        (AttnQNorm, Weight),
        (AttnKNorm, Weight),
        (PostAttentionNorm, Weight),
        (SsmNorm, Weight),
        (AttnQ, Weight),
        (AttnK, Weight),
        (AttnV, Weight),
        (AttnOutput, Weight),
        (AttnQkv, Weight),
        (AttnGate, Weight),
        (AttnQ, Bias),
        (AttnK, Bias),
        (AttnV, Bias),
        (AttnQkv, Bias),
        (AttnOutput, Bias),
        (FfnNorm, Weight),
        (FfnNorm, Bias),
        (PostFfwNorm, Weight),
        (FfnGate, Weight),
        (FfnDown, Weight),
        (FfnUp, Weight),
        (FfnGateInp, Weight),
        (FfnGateExps, Weight),
        (FfnDownExps, Weight),
        (FfnUpExps, Weight),
        (FfnGateUpExps, Weight),
        (FfnGateExps, Scale),
        (FfnDownExps, Scale),
        (FfnUpExps, Scale),
        (FfnGateInpShexp, Weight),
        (FfnGateShexp, Weight),
        (FfnDownShexp, Weight),
        (FfnUpShexp, Weight),
        (FfnGate, Bias),
        (FfnDown, Bias),
        (FfnUp, Bias),
        (SsmIn, Weight),
        (SsmDt, Bias),
        (SsmOut, Weight),
        (SsmConv1d, Weight),
        (SsmA, Bare),
        (SsmBa, Weight),
        (RopeFreqs, Weight),
        (AttnQ, Scale),
        (AttnK, Scale),
        (AttnV, Scale),
        (AttnOutput, Scale),
        (AttnQkv, Scale),
        (AttnGate, Scale),
        (FfnGate, Scale),
        (FfnUp, Scale),
        (FfnDown, Scale),
        (FfnGateShexp, Scale),
        (FfnUpShexp, Scale),
        (FfnDownShexp, Scale),
        (SsmIn, Scale),
        (SsmOut, Scale),
        (AttnQ, InputScale),
        (AttnK, InputScale),
        (AttnV, InputScale),
        (AttnOutput, InputScale),
        (AttnQkv, InputScale),
        (AttnGate, InputScale),
        (FfnGate, InputScale),
        (FfnUp, InputScale),
        (FfnDown, InputScale),
        (FfnGateExps, InputScale),
        (FfnDownExps, InputScale),
        (FfnUpExps, InputScale),
        (FfnGateShexp, InputScale),
        (FfnUpShexp, InputScale),
        (FfnDownShexp, InputScale),
        (SsmIn, InputScale),
        (SsmOut, InputScale),
    ]
};

/// Whose tensor it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    Model,
    Layer(usize),
}

/// The name of a tensor in files.
pub(super) fn tensor_name(site: Site, stem: Stem, part: Part) -> String {
    match site {
        Site::Layer(layer) => format!("blk.{layer}.{}{}", stem.name(), part.suffix()),
        Site::Model => format!("{}{}", stem.name(), part.suffix()),
    }
}

/// How much a model wants a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// There is no model without it.
    Required,
    /// It is used where it is there; dummies have it.
    Optional,
    /// Files may carry it and dummies do, but no graph reads it.
    Unread,
}

struct Want {
    name: String,
    ne: [usize; 4],
    need: Need,
    /// Where a file has it: the model's own tensors, then layer by layer.
    rank: (usize, usize),
}

/// What a model wants.
#[derive(Default)]
pub(super) struct Wants {
    list: Vec<Want>,
    names: HashSet<String>,
}

impl Wants {
    /// Asks for one tensor, of shape `ne`; asking again changes nothing.
    pub(super) fn tensor(&mut self, site: Site, stem: Stem, part: Part, ne: &[usize], need: Need) {
        self.push(tensor_name(site, stem, part), site, (stem, part), ne, need);
    }

    /// Asks for the token embedding where a file of tied embeddings has it, in the place of the output matrix.
    pub(super) fn tied(&mut self, ne: &[usize]) {
        let name = tensor_name(Site::Model, Stem::TokenEmbd, Part::Weight);
        self.push(name, Site::Model, (Stem::Output, Part::Weight), ne, Need::Required);
    }

    /// Asks for the frequency factors `[n]`, which the layers share and files keep in the first.
    pub(super) fn rope_factors(&mut self, n: usize) {
        let key = (Stem::RopeFreqs, Part::Weight);
        self.push(tensor_name(Site::Model, key.0, key.1), Site::Layer(0), key, &[n], Need::Optional);
    }

    fn push(&mut self, name: String, site: Site, place: (Stem, Part), dims: &[usize], need: Need) {
        if !self.names.insert(name.clone()) {
            return;
        }
        let mut ne = [1; 4];
        ne.iter_mut().zip(dims).for_each(|(n, &dim)| *n = dim);
        let within = FILE_ORDER.iter().position(|&entry| entry == place).unwrap_or(FILE_ORDER.len());
        let group = match site {
            Site::Model => 0,
            Site::Layer(layer) => layer + 1,
        };
        self.list.push(Want { name, ne, need, rank: (group, within) });
    }

    /// Asks for a matrix `ne`, its bias if it may have one, and its scales: one factor, or one for each matrix of a
    /// stack `[k, m, experts]`.
    pub(super) fn linear(&mut self, site: Site, stem: Stem, ne: &[usize], bias: Option<Need>, scale: Need) {
        self.tensor(site, stem, Part::Weight, ne, Need::Required);
        if let (Some(need), Some(&rows)) = (bias, ne.get(1)) {
            self.tensor(site, stem, Part::Bias, &[rows], need);
        }
        let factors = ne.get(2).copied().unwrap_or(1);
        self.tensor(site, stem, Part::Scale, &[factors], scale);
        self.tensor(site, stem, Part::InputScale, &[factors], Need::Unread);
    }

    /// Tensors that have no place in [`FILE_ORDER`].
    #[cfg(test)]
    pub(super) fn without_place(&self) -> Vec<&str> {
        self.list.iter().filter(|want| want.rank.1 == FILE_ORDER.len()).map(|want| want.name.as_str()).collect()
    }

    /// Every tensor, all f32, in the order of a file.
    pub(super) fn all(mut self) -> Vec<TensorSpec> {
        self.list.sort_by_key(|want| want.rank);
        self.list.into_iter().map(|Want { name, ne, .. }| TensorSpec { name, dtype: DType::F32, ne }).collect()
    }

    /// Checks the tensors of a file and gives those that graphs read, by name.
    pub(super) fn check(
        self,
        arch: &'static str,
        given: &[TensorSpec],
    ) -> Result<HashMap<String, TensorSpec>, ModelError> {
        let mut found: HashMap<&str, &TensorSpec> = given.iter().map(|spec| (spec.name.as_str(), spec)).collect();
        let mut read = HashMap::new();
        for Want { name, ne, need, .. } in self.list {
            let Some(spec) = found.remove(name.as_str()) else {
                match need {
                    Need::Required => return Err(ModelError::MissingTensor { tensor: name }),
                    Need::Optional | Need::Unread => continue,
                }
            };
            if spec.ne != ne {
                return Err(ModelError::WrongShape { tensor: name, given: spec.ne, expected: ne });
            }
            if need != Need::Unread {
                read.insert(name, spec.clone());
            }
        }
        match given.iter().find(|spec| found.contains_key(spec.name.as_str())) {
            Some(spec) => Err(ModelError::UnexpectedTensor { tensor: spec.name.clone(), arch }),
            None => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FILE_ORDER;

    #[test]
    fn every_place_in_a_file_is_one_tensors() {
        for (at, entry) in FILE_ORDER.iter().enumerate() {
            assert!(!FILE_ORDER[..at].contains(entry), "{entry:?}");
        }
    }
}
