//! Attention over a cache of keys and values.

use super::Block;
use super::norm::Normalizer;
use crate::graph::{DType, FlashAttn, Precision, Rope, RopeMode, TensorId, Unary};
use crate::model::builder::{After, Builder, InputRole};
use crate::model::hparams::{Facts, Hparams};
use crate::model::weights::{Need, Part, Site, Stem, Wants, tensor_name};
use crate::model::{CacheKind, CacheSpec, ModelError};

/// Switches of attention.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Attn {
    /// How dummies keep the projections; files may do either.
    pub projection: Projection,
    /// Whether the projections to queries, keys and values may have a bias.
    pub bias: Option<Need>,
    /// Whether the output projection may have a bias.
    pub out_bias: Option<Need>,
    /// Whether each head's queries and keys are normalised.
    pub qk_norm: bool,
    pub pos: Pos,
    pub mask: Mask,
    pub scale: Scale,
    /// Bound of the products of queries and keys.
    pub cap: Option<Cap>,
    /// Whether the projection to queries also gives a gate for each head's result.
    pub gate: bool,
}

/// How the projections to queries, keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Projection {
    /// As three tensors.
    Split,
    /// As one tensor.
    Joined,
}

/// How attention learns positions.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) enum Pos {
    /// It does not.
    None,
    /// By turning queries and keys, with a factor for each frequency where a file has them and the row allows it.
    Rope { mode: RopeMode, factors: bool },
}

/// Which positions a token sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Mask {
    /// All before it.
    Causal,
    /// The last ones before it; their number stands under the key.
    Window(&'static str),
}

/// What the products of queries and keys are multiplied with, and where: `1 / sqrt(key length)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Scale {
    /// On the products.
    Products,
    /// On the queries, before. The one released size with `wide_at` layers takes the head's share of the embedding for
    /// the key length.
    Queries { wide_at: Option<usize> },
}

/// A soft bound, `cap · tanh(x / cap)`.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Cap {
    pub key: &'static str,
    /// The bound where the key is missing.
    pub or: f32,
}

impl Cap {
    /// The bound, if there is one: 0 is none.
    pub(super) fn read(cap: Option<Self>, facts: &Facts<'_>) -> Result<Option<f32>, ModelError> {
        match cap {
            Some(Self { key, or }) => Ok(Some(facts.number_or(key, or)?).filter(|&bound| bound != 0.0)),
            None => Ok(None),
        }
    }
}

/// [`Attn`] with its numbers.
#[derive(Clone, Debug)]
pub(in crate::model) struct Attention {
    row: Attn,
    layer: usize,
    norm: Normalizer,
    n_embd: usize,
    heads: usize,
    heads_kv: usize,
    /// Length of a key and of a query.
    key: usize,
    /// Length of a value.
    value: usize,
    rope: Option<Rope>,
    window: Option<u32>,
    scale: f32,
    cap: Option<f32>,
    projection: Projection,
}

impl Attn {
    pub(in crate::model) fn read(
        self,
        facts: &Facts<'_>,
        hparams: &Hparams,
        norm: Normalizer,
        layer: usize,
    ) -> Result<Attention, ModelError> {
        const HEADS: &str = "attention.head_count";
        let n_embd = hparams.n_embd;
        let heads = facts.layer_size(HEADS, layer)?;
        let heads_kv = facts.optional_layer_size("attention.head_count_kv", layer)?.unwrap_or(heads);
        let length = |key: &str| match facts.optional_size(key)? {
            Some(length) => Ok(length),
            None if n_embd.is_multiple_of(heads) => Ok(n_embd / heads),
            None => Err(facts.wrong(HEADS, format!("a divisor of {n_embd}"))),
        };
        let (key, value) = (length("attention.key_length")?, length("attention.value_length")?);
        let rope = match self.pos {
            Pos::None => None,
            Pos::Rope { mode, factors: _ } => Some(read_rope(mode, facts, hparams, key)?),
        };
        let window = match self.mask {
            Mask::Causal => None,
            Mask::Window(key) => Some(facts.window(key)?),
        };
        let scaled_by = match self.scale {
            Scale::Queries { wide_at: Some(n_layer) } if n_layer == hparams.n_layer => n_embd / heads,
            Scale::Queries { wide_at: _ } | Scale::Products => key,
        };
        // A gate lies between the heads' queries, which a joined tensor has no place for.
        let joined = !self.gate
            && facts.has_tensor(
                &tensor_name(Site::Layer(layer), Stem::AttnQkv, Part::Weight),
                self.projection == Projection::Joined,
            );
        Ok(Attention {
            row: self,
            layer,
            norm,
            n_embd,
            heads,
            heads_kv,
            key,
            value,
            rope,
            window,
            scale: 1.0 / (scaled_by as f32).sqrt(),
            cap: Cap::read(self.cap, facts)?,
            projection: if joined { Projection::Joined } else { Projection::Split },
        })
    }
}

fn read_rope(mode: RopeMode, facts: &Facts<'_>, hparams: &Hparams, key: usize) -> Result<Rope, ModelError> {
    const DIMENSIONS: &str = "rope.dimension_count";
    const ORIGINAL: &str = "rope.scaling.original_context_length";
    const TYPE: &str = "rope.scaling.type";
    let n_dims = facts.optional_size(DIMENSIONS)?.unwrap_or(key);
    let n_ctx_orig = facts.optional_positions(ORIGINAL)?.unwrap_or(hparams.n_ctx_train);
    let factor = match facts.text(TYPE)?.as_deref() {
        None | Some("linear") => facts.number_or("rope.scaling.factor", 0.0)?,
        Some("none") => 0.0,
        Some(_) => return Err(facts.wrong(TYPE, "`linear` or `none`")),
    };
    Ok(Rope {
        n_dims: u32::try_from(n_dims).map_err(|_| facts.wrong(DIMENSIONS, "a u32"))?,
        first_dim: 0,
        mode,
        n_ctx_orig: u32::try_from(n_ctx_orig).map_err(|_| facts.wrong(ORIGINAL, "a u32"))?,
        freq_base: facts.number_or("rope.freq_base", 10_000.0)?,
        freq_scale: if factor == 0.0 { 1.0 } else { 1.0 / factor },
        ext_factor: 0.0,
        attn_factor: facts.number_or("rope.scaling.attn_factor", 1.0)?,
        beta_fast: facts.number_or("rope.scaling.yarn_beta_fast", 32.0)?,
        beta_slow: facts.number_or("rope.scaling.yarn_beta_slow", 1.0)?,
    })
}

/// Queries `[key, heads, n_tokens]`, keys `[key, heads_kv, n_tokens]`, values `[value, heads_kv, n_tokens]`, and with
/// [`Attn::gate`] the gate, a view of `[value, heads, n_tokens]`.
struct Projected {
    q: TensorId,
    k: TensorId,
    v: TensorId,
    gate: Option<TensorId>,
}

impl Attention {
    fn site(&self) -> Site {
        Site::Layer(self.layer)
    }

    /// `x` by a matrix. The scale first: it belongs to the matrix alone.
    fn linear(&self, b: &mut Builder<'_>, stem: Stem, x: TensorId) -> Result<TensorId, ModelError> {
        b.linear(self.site(), stem, x, &[After::Scale, After::Bias])
    }

    fn project(&self, b: &mut Builder<'_>, x: TensorId) -> Result<Projected, ModelError> {
        let n_tokens = b.graph.tensor(x).ne()[1];
        let Self { heads, heads_kv, key, value, .. } = *self;
        if self.projection == Projection::Joined {
            let joined = self.linear(b, Stem::AttnQkv, x)?;
            let nb = b.graph.tensor(joined).nb();
            let mut part = |length: usize, heads: usize, start: usize| {
                b.view_3d(joined, [length, heads, n_tokens], [length * nb[0], nb[1]], start * nb[0])
            };
            return Ok(Projected {
                q: part(key, heads, 0)?,
                k: part(key, heads_kv, key * heads)?,
                v: part(value, heads_kv, key * (heads + heads_kv))?,
                gate: None,
            });
        }
        let q = self.linear(b, Stem::AttnQ, x)?;
        let k = self.linear(b, Stem::AttnK, x)?;
        let v = self.linear(b, Stem::AttnV, x)?;
        let (q, gate) = if self.row.gate {
            let both = b.graph.reshape(q, [key + value, heads, n_tokens, 1])?;
            let nb = b.graph.tensor(both).nb();
            let q = b.view_3d(both, [key, heads, n_tokens], [nb[1], nb[2]], 0)?;
            let gate = b.view_3d(both, [value, heads, n_tokens], [nb[1], nb[2]], key * nb[0])?;
            (q, Some(gate))
        } else {
            (b.graph.reshape(q, [key, heads, n_tokens, 1])?, None)
        };
        Ok(Projected {
            q,
            k: b.graph.reshape(k, [key, heads_kv, n_tokens, 1])?,
            v: b.graph.reshape(v, [value, heads_kv, n_tokens, 1])?,
            gate,
        })
    }

    /// Queries and keys normalised and turned as the row says.
    fn position(
        &self,
        b: &mut Builder<'_>,
        mut q: TensorId,
        mut k: TensorId,
    ) -> Result<(TensorId, TensorId), ModelError> {
        if self.row.qk_norm {
            q = self.norm.build(b, self.site(), Stem::AttnQNorm, q)?;
            k = self.norm.build(b, self.site(), Stem::AttnKNorm, k)?;
        }
        if let Some(rope) = self.rope {
            let positions = b.input(InputRole::Positions)?;
            let factors = b.optional(Site::Model, Stem::RopeFreqs, Part::Weight)?;
            q = b.graph.rope(q, positions, factors, rope)?;
            k = b.graph.rope(k, positions, factors, rope)?;
        }
        Ok((q, k))
    }

    /// Writes the rows of `values [d, heads_kv, n_tokens]` to a cache.
    fn store(&self, b: &mut Builder<'_>, values: TensorId, rows: InputRole, cache: TensorId) -> Result<(), ModelError> {
        let t = b.graph.tensor(values);
        let ([d, heads, n_tokens, _], nb) = (t.ne(), t.nb());
        let values = b.view_2d(values, [d * heads, n_tokens], nb[2], 0)?;
        let rows = b.input(rows)?;
        let stored = b.graph.set_rows(values, rows, cache)?;
        Ok(b.graph.expand(stored)?)
    }

    /// The rows of a cache that the batch sees: `[d, n_kv, heads_kv]`.
    fn load(&self, b: &mut Builder<'_>, cache: TensorId, d: usize) -> Result<TensorId, ModelError> {
        let layout = *b.graph.tensor(cache).layout();
        let head = layout.dtype.block_bytes() * (d / layout.dtype.block_size());
        let rows = b.graph.view(
            cache,
            [d, self.heads_kv, b.batch.n_kv, 1],
            [layout.nb[0], head, layout.nb[1], layout.nb[2]],
            0,
        )?;
        Ok(b.graph.permute(rows, [0, 2, 1, 3])?)
    }

    /// The heads' results for queries `q`, side by side: `[value · heads, n_tokens]`.
    fn attend(&self, b: &mut Builder<'_>, q: TensorId, [k, v]: [TensorId; 2]) -> Result<TensorId, ModelError> {
        let t = b.graph.tensor(q);
        let (ne, nb) = (t.ne(), t.nb());
        let q = b.graph.view(q, ne, nb, 0)?;
        let q = b.graph.permute(q, [0, 2, 1, 3])?;
        let k = self.load(b, k, self.key)?;
        let v = self.load(b, v, self.value)?;
        let mask = b.input(InputRole::Mask { window: self.window })?;
        let attn = FlashAttn {
            scale: match self.row.scale {
                Scale::Products => self.scale,
                Scale::Queries { wide_at: _ } => 1.0,
            },
            max_bias: 0.0,
            logit_softcap: self.cap.unwrap_or(0.0),
            precision: Precision::F32,
        };
        let y = b.graph.flash_attn([q, k, v], Some(mask), None, attn)?;
        let y = b.graph.reshape(y, [self.value * self.heads, ne[2], 1, 1])?;
        b.graph.expand(y)?;
        Ok(y)
    }

    fn key_cache(&self, n_ctx: usize) -> CacheSpec {
        self.cache("cache_k_l", self.key * self.heads_kv, n_ctx)
    }

    fn value_cache(&self, n_ctx: usize) -> CacheSpec {
        self.cache("cache_v_l", self.value * self.heads_kv, n_ctx)
    }

    fn cache(&self, prefix: &str, row: usize, n_ctx: usize) -> CacheSpec {
        let name = format!("{prefix}{}", self.layer);
        CacheSpec { name, kind: CacheKind::Rows, dtype: DType::F16, ne: [row, n_ctx, 1, 1] }
    }
}

impl Block for Attention {
    fn wants(&self, wants: &mut Wants) {
        let Self { n_embd, heads, heads_kv, key, value, .. } = *self;
        let (site, scale) = (self.site(), Need::Optional);
        let query = if self.row.gate { key + value } else { key };
        match self.projection {
            Projection::Split => {
                wants.linear(site, Stem::AttnQ, &[n_embd, query * heads], self.row.bias, scale);
                wants.linear(site, Stem::AttnK, &[n_embd, key * heads_kv], self.row.bias, scale);
                wants.linear(site, Stem::AttnV, &[n_embd, value * heads_kv], self.row.bias, scale);
            }
            Projection::Joined => {
                let rows = key * heads + (key + value) * heads_kv;
                wants.linear(site, Stem::AttnQkv, &[n_embd, rows], self.row.bias, scale);
            }
        }
        wants.linear(site, Stem::AttnOutput, &[value * heads, n_embd], self.row.out_bias, scale);
        if self.row.qk_norm {
            self.norm.wants(wants, site, Stem::AttnQNorm, key, Need::Required);
            self.norm.wants(wants, site, Stem::AttnKNorm, key, Need::Required);
        }
        if let (Pos::Rope { mode: _, factors: true }, Some(rope)) = (self.row.pos, self.rope) {
            wants.rope_factors(rope.n_dims as usize / 2);
        }
    }

    fn caches(&self, n_ctx: usize) -> Vec<CacheSpec> {
        vec![self.key_cache(n_ctx), self.value_cache(n_ctx)]
    }

    fn build(&self, b: &mut Builder<'_>, x: TensorId) -> Result<TensorId, ModelError> {
        let Projected { q, k, v, gate } = self.project(b, x)?;
        let (mut q, k) = self.position(b, q, k)?;
        match self.row.scale {
            Scale::Products => {}
            Scale::Queries { wide_at: _ } => q = b.graph.scale(q, self.scale, 0.0)?,
        }
        // Keys last, so that what turns them stands beside what stores them; with windows the reference does not.
        let order = if b.has_windows() { [q, k, v] } else { [q, v, k] };
        order.iter().try_for_each(|&id| b.graph.expand(id))?;
        let caches = [b.cache(self.key_cache(b.batch.n_ctx))?, b.cache(self.value_cache(b.batch.n_ctx))?];
        self.store(b, k, InputRole::KeyRows { window: self.window }, caches[0])?;
        self.store(b, v, InputRole::ValueRows { window: self.window }, caches[1])?;
        let mut y = self.attend(b, q, caches)?;
        if let Some(gate) = gate {
            let ne = b.graph.tensor(y).ne();
            let gate = b.graph.cont(gate, ne)?;
            let gate = b.graph.unary(gate, Unary::Sigmoid)?;
            y = b.graph.mul(y, gate)?;
        }
        self.linear(b, Stem::AttnOutput, y)
    }
}
