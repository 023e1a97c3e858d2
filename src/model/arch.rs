//! The table of architectures: structure from the row, numbers from metadata, optional parts from the tensors there are.

use super::ModelError;
use super::blocks::{
    Act, Attn, Block, Cap, DeltaNet, Dense, Embed, ExpertWidth, Head, Mask, Moe, Norm, Normalizer, OutputRows, Pos,
    Projection, Scale, Shared, SharedGate,
};
use super::dummy::Lit;
use super::hparams::{Facts, Hparams};
use super::weights::{Need, Stem};
use crate::graph::{Glu, RopeMode, Unary};

/// An architecture.
#[derive(Debug)]
pub(super) struct Arch {
    pub name: &'static str,
    pub norm: Norm,
    /// What layers are made of,
    pub layer: Layer,
    /// except those that the first fitting of these picks.
    pub except: &'static [(Pick, Layer)],
    pub embed: Embed,
    pub head: Head,
    /// Metadata in which the architecture's dummies differ from the rest.
    pub tiny: &'static [(&'static str, Lit)],
}

/// A layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer {
    pub place: Place,
    /// What the norm before the feed-forward network is called.
    pub ffn_norm: Stem,
    pub mix: Mix,
    pub ffn: Ffn,
}

/// Where a layer normalises and adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `h = x + mix(norm(x))`, then `h + ffn(norm(h))`.
    Pre,
    /// [`Place::Pre`] with both results normalised before they are added.
    Sandwich,
    /// `x + mix(n) + ffn(n)` with `n = norm(x)`.
    Parallel {
        /// The mixer has a norm of its own, in files that have it.
        second_norm: bool,
        /// The order of the sum: `ffn + mix`.
        network_first: bool,
    },
}

/// What mixes tokens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mix {
    Attn(Attn),
    DeltaNet(DeltaNet),
}

impl Mix {
    pub(super) fn read(
        self,
        facts: &Facts<'_>,
        hparams: &Hparams,
        norm: Normalizer,
        layer: usize,
    ) -> Result<Box<dyn Block>, ModelError> {
        Ok(match self {
            Self::Attn(row) => Box::new(row.read(facts, hparams, norm, layer)?),
            Self::DeltaNet(row) => Box::new(row.read(facts, hparams, norm, layer)?),
        })
    }

    const fn has_window(self) -> bool {
        match self {
            Self::Attn(row) => matches!(row.mask, Mask::Window(_)),
            Self::DeltaNet(_) => false,
        }
    }
}

/// What follows the mixer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ffn {
    Dense(Dense),
    Moe(Moe),
    /// Experts in a model that has any, else dense.
    Either(Dense, Moe),
}

impl Ffn {
    pub(super) fn read(self, facts: &Facts<'_>, hparams: &Hparams, layer: usize) -> Result<Box<dyn Block>, ModelError> {
        let dense = match self {
            Self::Dense(_) => true,
            Self::Moe(_) => false,
            Self::Either(..) => facts.count("expert_count")? == 0,
        };
        Ok(match self {
            Self::Dense(row) => Box::new(row.read(facts, hparams, layer)?),
            Self::Either(row, _) if dense => Box::new(row.read(facts, hparams, layer)?),
            Self::Moe(row) | Self::Either(_, row) => Box::new(row.read(facts, hparams, layer)?),
        })
    }
}

/// Which layers an exception is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pick {
    /// Those whose flag in the list is 0; without a list the last of every `n`, by a key of their own or as given.
    Unlisted { list: &'static str, every: Option<&'static str>, or: usize },
}

impl Pick {
    fn picks(self, facts: &Facts<'_>, layer: usize) -> Result<bool, ModelError> {
        let Self::Unlisted { list, every, or } = self;
        if let Some(listed) = facts.listed(list, layer)? {
            return Ok(!listed);
        }
        let every = match every {
            Some(key) => facts.optional_size(key)?.unwrap_or(or),
            None => or,
        };
        Ok((layer + 1).is_multiple_of(every))
    }
}

impl Arch {
    /// What a layer is made of.
    pub(super) fn layer(&self, facts: &Facts<'_>, layer: usize) -> Result<Layer, ModelError> {
        for (pick, other) in self.except {
            if pick.picks(facts, layer)? {
                return Ok(*other);
            }
        }
        Ok(self.layer)
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        std::iter::once(&self.layer).chain(self.except.iter().map(|(_, layer)| layer))
    }

    /// Whether some layers see a window.
    pub(super) fn has_windows(&self) -> bool {
        self.layers().any(|layer| layer.mix.has_window())
    }

    /// Whether there are models without experts, and with them.
    pub(super) fn variants(&self) -> (bool, bool) {
        self.layers().fold((true, false), |(dense, experts), layer| match layer.ffn {
            Ffn::Dense(_) => (dense, experts),
            Ffn::Moe(_) => (false, true),
            Ffn::Either(..) => (dense, true),
        })
    }
}

const SWIGLU: Dense = Dense { act: Act::Gated(Glu::Swiglu), bias: Some(Need::Optional), scales: true };

const GELU: Dense = Dense { act: Act::Plain(Unary::Gelu), bias: Some(Need::Required), scales: false };

const MOE: Moe =
    Moe { act: Glu::Swiglu, width: ExpertWidth::Dense, normalize: true, scales: true, joined: false, shared: None };

const NEOX: Pos = Pos::Rope { mode: RopeMode::Neox, factors: false };

const ATTN: Attn = Attn {
    projection: Projection::Split,
    bias: Some(Need::Optional),
    out_bias: None,
    qk_norm: false,
    pos: NEOX,
    mask: Mask::Causal,
    scale: Scale::Products,
    cap: None,
    gate: false,
};

const LLAMA: Arch = Arch {
    name: "llama",
    norm: Norm::Rms,
    layer: Layer {
        place: Place::Pre,
        ffn_norm: Stem::FfnNorm,
        mix: Mix::Attn(Attn {
            out_bias: Some(Need::Optional),
            pos: Pos::Rope { mode: RopeMode::Normal, factors: true },
            ..ATTN
        }),
        ffn: Ffn::Either(SWIGLU, MOE),
    },
    except: &[],
    embed: Embed { positions: false, scaled: false },
    head: Head { tied: false, bias: None, rows: OutputRows::LastLayer, cap: None },
    tiny: &[],
};

const GPT2: Arch = Arch {
    name: "gpt2",
    norm: Norm::Layer,
    layer: Layer {
        mix: Mix::Attn(Attn {
            projection: Projection::Joined,
            bias: Some(Need::Required),
            out_bias: Some(Need::Required),
            pos: Pos::None,
            ..ATTN
        }),
        ffn: Ffn::Dense(GELU),
        ..LLAMA.layer
    },
    embed: Embed { positions: true, scaled: false },
    ..LLAMA
};

const PHI2: Arch = Arch {
    name: "phi2",
    norm: Norm::Layer,
    layer: Layer {
        place: Place::Parallel { second_norm: false, network_first: false },
        mix: Mix::Attn(Attn {
            bias: Some(Need::Required),
            out_bias: Some(Need::Required),
            scale: Scale::Queries { wide_at: None },
            ..ATTN
        }),
        ffn: Ffn::Dense(GELU),
        ..LLAMA.layer
    },
    head: Head { bias: Some(Need::Required), ..LLAMA.head },
    ..LLAMA
};

const FALCON: Arch = Arch {
    name: "falcon",
    norm: Norm::Layer,
    layer: Layer {
        place: Place::Parallel { second_norm: true, network_first: true },
        mix: Mix::Attn(Attn { projection: Projection::Joined, bias: None, ..ATTN }),
        ffn: Ffn::Dense(Dense { bias: None, ..GELU }),
        ..LLAMA.layer
    },
    ..LLAMA
};

/// Attention of gemma2's full layers. The 46 layers are its 27B model.
const GEMMA2_FULL: Attn = Attn {
    scale: Scale::Queries { wide_at: Some(46) },
    cap: Some(Cap { key: "attn_logit_softcapping", or: 50.0 }),
    ..ATTN
};

const GEMMA2_LAYER: Layer = Layer {
    place: Place::Sandwich,
    mix: Mix::Attn(Attn { mask: Mask::Window("attention.sliding_window"), ..GEMMA2_FULL }),
    ffn: Ffn::Dense(Dense { act: Act::Gated(Glu::Geglu), bias: None, scales: false }),
    ..LLAMA.layer
};

const GEMMA2: Arch = Arch {
    name: "gemma2",
    layer: GEMMA2_LAYER,
    except: &[(
        Pick::Unlisted { list: "attention.sliding_window_pattern", every: None, or: 2 },
        Layer { mix: Mix::Attn(GEMMA2_FULL), ..GEMMA2_LAYER },
    )],
    embed: Embed { positions: false, scaled: true },
    head: Head { tied: true, cap: Some(Cap { key: "final_logit_softcapping", or: 30.0 }), ..LLAMA.head },
    tiny: &[
        ("attention.sliding_window", Lit::U32(32)),
        ("attention.sliding_window_pattern", Lit::U32s(&[1, 0])),
        // 1 / sqrt(128), which the reference derives and writes back.
        ("attention.scale", Lit::F32(0.088_388_346)),
    ],
    ..LLAMA
};

const QWEN2MOE: Arch = Arch {
    name: "qwen2moe",
    layer: Layer {
        mix: Mix::Attn(ATTN),
        ffn: Ffn::Moe(Moe {
            width: ExpertWidth::Own,
            normalize: false,
            scales: false,
            shared: Some(Shared { gate: SharedGate::SiluRatio }),
            ..MOE
        }),
        ..LLAMA.layer
    },
    tiny: &[("expert_feed_forward_length", Lit::U32(384)), ("expert_shared_feed_forward_length", Lit::U32(192))],
    ..LLAMA
};

const QWEN3NEXT_LAYER: Layer = Layer {
    // The norm after attention is the one before the network; the residual does not pass it.
    ffn_norm: Stem::PostAttentionNorm,
    mix: Mix::DeltaNet(DeltaNet),
    ffn: Ffn::Moe(Moe {
        width: ExpertWidth::Own,
        joined: true,
        shared: Some(Shared { gate: SharedGate::Sigmoid }),
        ..MOE
    }),
    ..LLAMA.layer
};

const QWEN3NEXT: Arch = Arch {
    name: "qwen3next",
    layer: QWEN3NEXT_LAYER,
    except: &[(
        Pick::Unlisted { list: "attention.recurrent_layers", every: Some("full_attention_interval"), or: 4 },
        Layer { mix: Mix::Attn(Attn { qk_norm: true, gate: true, ..ATTN }), ..QWEN3NEXT_LAYER },
    )],
    head: Head { rows: OutputRows::Head, ..LLAMA.head },
    tiny: &[
        ("attention.recurrent_layers", Lit::U32s(&[1, 0])),
        ("ssm.inner_size", Lit::U32(256)),
        ("ssm.conv_kernel", Lit::U32(4)),
        ("ssm.state_size", Lit::U32(128)),
        ("ssm.time_step_rank", Lit::U32(2)),
        ("ssm.group_count", Lit::U32(2)),
        QWEN2MOE.tiny[0],
        QWEN2MOE.tiny[1],
    ],
    ..LLAMA
};

/// Every architecture.
pub(super) static ARCHS: &[Arch] = &[LLAMA, GPT2, PHI2, FALCON, GEMMA2, QWEN2MOE, QWEN3NEXT];

/// How many names an error suggests.
const SUGGESTIONS: usize = 3;

/// The row with this name.
pub(super) fn find(name: &str) -> Result<&'static Arch, ModelError> {
    if let Some(arch) = ARCHS.iter().find(|arch| arch.name == name) {
        return Ok(arch);
    }
    let mut nearest: Vec<&'static str> = ARCHS.iter().map(|arch| arch.name).collect();
    nearest.sort_by_cached_key(|known| distance(known, name));
    nearest.truncate(SUGGESTIONS);
    Err(ModelError::UnknownArch { name: name.to_owned(), nearest })
}

/// How many characters to insert, remove or replace to make one word of the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (above, &y) in row.iter_mut().skip(1).zip(&b) {
            left = (diagonal + usize::from(x != y)).min(*above + 1).min(left + 1);
            diagonal = std::mem::replace(above, left);
        }
    }
    // The first entry of the row stands for an empty `b` and is never needed again.
    if b.is_empty() { a.chars().count() } else { row[b.len()] }
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distances() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("qwen2moe", "qwen2moe"), 0);
        assert_eq!(distance("ab", "ba"), 2);
    }
}
