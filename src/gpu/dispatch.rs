//! Dispatches as data: which kernel, over which buffers, with which parameters and grid.
//!
//! An encoder turns a group into a [`Dispatch`] through [`Encoder`]. Kernels never count bindings or parameters:
//! everything is named by its role here and in the kernel's source, and the declarations of both are composed from the
//! dispatch itself (see [`compose`](super::compose)), so that the two sides cannot disagree.

use super::caps::Caps;
use crate::device::DeviceError;
use crate::graph::{BufferClass, DType, Graph, OpKind, Tensor, TensorId};
use crate::plan::{Place, Placement};
use std::fmt;

/// Bytes of parameters that every adapter takes as immediates.
pub const MAX_PARAM_BYTES: usize = 128;

/// How a kernel uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Bound read-only: weights.
    Read,
    /// Bound read-write and only read here. wgpu refuses one buffer bound both ways, and results share arenas.
    SharedRead,
    /// Written.
    Write,
}

/// A tensor bound under a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The name that the kernel's source uses.
    pub role: &'static str,
    /// The whole buffer is bound; the tensor's offset is a parameter.
    pub place: Place,
    /// Element type, which chooses the accessors.
    pub dtype: DType,
    /// How it is used.
    pub access: Access,
}

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamType {
    /// `u32`.
    U32,
    /// `f32`.
    F32,
}

/// A named 32-bit parameter, handed over as an immediate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Field of `p` in the kernel's source.
    pub name: String,
    /// Its type there.
    pub kind: ParamType,
    /// Its value.
    pub bits: u32,
}

/// Value of a switch that a kernel's source is composed with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Switch {
    /// On or off.
    Bool(bool),
    /// A number that is part of the code: a length, a workgroup size.
    Int(u32),
    /// A choice.
    Str(&'static str),
    /// Several numbers.
    Ints(Vec<u32>),
}

/// One launch of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// File stem of the kernel's source in `wgsl/`.
    pub kernel: &'static str,
    /// What the source is composed with.
    pub switches: Vec<(&'static str, Switch)>,
    /// Buffers, in binding order.
    pub bindings: Vec<Binding>,
    /// Parameters, in memory order.
    pub params: Vec<Param>,
    /// Threads per workgroup, given to the source as `wg`.
    pub workgroup: u32,
    /// Workgroups per dimension.
    pub grid: [u32; 3],
}

/// What encoders know: the graph, where its tensors live, and what the adapter can do.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Where its tensors live.
    pub placement: &'a Placement,
    /// What the adapter can do.
    pub caps: &'a Caps,
    /// Name of the device, for errors.
    pub device: &'a str,
}

impl<'a> Context<'a> {
    /// The tensor with this id.
    pub fn tensor(&self, id: TensorId) -> &'a Tensor {
        self.graph.tensor(id)
    }

    /// Source `index` of a node that its operation requires.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] when the node has no such source.
    pub fn source(&self, node: TensorId, index: usize) -> Result<TensorId, DeviceError> {
        let tensor = self.tensor(node);
        tensor.src(index).ok_or_else(|| self.unsupported(tensor.kind(), format!("a missing source {index}")))
    }

    /// The error for something this device has no kernel for.
    pub fn unsupported(&self, op: OpKind, detail: impl Into<String>) -> DeviceError {
        DeviceError::Unsupported { device: self.device.to_owned(), op, detail: detail.into() }
    }

    /// Starts a dispatch of `kernel` for `node`.
    pub fn kernel(&self, kernel: &'static str, node: TensorId) -> Encoder<'a> {
        Encoder {
            cx: *self,
            op: self.tensor(node).kind(),
            error: None,
            dispatch: Dispatch {
                kernel,
                switches: Vec::new(),
                bindings: Vec::new(),
                params: Vec::new(),
                workgroup: 64,
                grid: [1; 3],
            },
        }
    }
}

/// One line: the kernel and its switches, the buffers, the parameters, the threads.
impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kernel)?;
        for (name, value) in &self.switches {
            write!(f, " {name}={value}")?;
        }
        for (index, Binding { role, place, dtype, access }) in self.bindings.iter().enumerate() {
            let separator = if index == 0 { " |" } else { "," };
            write!(f, "{separator} {role} {dtype}")?;
            match place {
                Place::Arena(arena) => write!(f, " arena {arena}")?,
                Place::Buffer(id) => write!(f, " buffer {}", id.0)?,
            }
            f.write_str(match access {
                Access::Read => " read",
                Access::SharedRead => " shared",
                Access::Write => " write",
            })?;
        }
        f.write_str(" |")?;
        for Param { name, kind, bits } in &self.params {
            match kind {
                ParamType::U32 => write!(f, " {name}={bits}")?,
                ParamType::F32 => write!(f, " {name}={:?}", f32::from_bits(*bits))?,
            }
        }
        let [x, y, z] = self.grid;
        write!(f, " | {x}x{y}x{z} of {}", self.workgroup)
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Str(value) => f.write_str(value),
            Self::Ints(values) => write!(f, "{values:?}"),
        }
    }
}

/// Builds a [`Dispatch`]; the first error is kept and returned by [`Encoder::finish`].
pub struct Encoder<'a> {
    cx: Context<'a>,
    op: OpKind,
    error: Option<DeviceError>,
    dispatch: Dispatch,
}

impl Encoder<'_> {
    /// Binds a tensor that the kernel reads: `fn ROLE_load(i) -> f32` (i32 for integers) takes element indices from the
    /// tensor's start.
    #[must_use]
    pub fn input(self, role: &'static str, id: TensorId) -> Self {
        let access = match self.cx.graph.class(id) {
            BufferClass::Weight => Access::Read,
            BufferClass::Cache | BufferClass::Computed => Access::SharedRead,
        };
        self.bind(role, id, access)
    }

    /// Binds an optional tensor that the kernel reads, and tells the source by the switch `has_ROLE`.
    #[must_use]
    pub fn optional_input(self, role: &'static str, has: &'static str, id: Option<TensorId>) -> Self {
        let this = self.switch(has, Switch::Bool(id.is_some()));
        match id {
            Some(id) => this.input(role, id),
            None => this,
        }
    }

    /// Binds a tensor that the kernel writes: `fn ROLE_store(i, value)`. Its threads write in no particular order; no
    /// graph has a result whose elements overlap.
    #[must_use]
    pub fn output(self, role: &'static str, id: TensorId) -> Self {
        self.bind(role, id, Access::Write)
    }

    fn bind(mut self, role: &'static str, id: TensorId, access: Access) -> Self {
        let tensor = self.cx.tensor(id);
        let Some(slot) = self.cx.placement.slot(self.cx.graph, id) else {
            return self.fail(format!("`{role}`, which has no memory"));
        };
        if tensor.dtype().is_quantized() {
            return self.fail(format!("`{role}` of type {}, for which there is no kernel", tensor.dtype()));
        }
        let unit = tensor.dtype().block_bytes();
        if !slot.offset.is_multiple_of(unit) {
            return self.fail(format!("`{role}` at byte {}, not a multiple of {unit}", slot.offset));
        }
        self.dispatch.bindings.push(Binding { role, place: slot.place, dtype: tensor.dtype(), access });
        self.size(format!("{role}_offset"), slot.offset / unit)
    }

    /// Parameters `ROLE_neD`: elements of a tensor in dimensions `dims`.
    #[must_use]
    pub fn shape(self, role: &str, id: TensorId, dims: &[usize]) -> Self {
        let ne = self.cx.tensor(id).ne();
        dims.iter().fold(self, |this, &dim| this.size(format!("{role}_ne{dim}"), ne[dim]))
    }

    /// Parameters `ROLE_nbD`: strides of a tensor in dimensions `dims`, in elements.
    #[must_use]
    pub fn strides(self, role: &str, id: TensorId, dims: &[usize]) -> Self {
        let tensor = self.cx.tensor(id);
        let unit = tensor.dtype().block_bytes();
        dims.iter().fold(self, |this, &dim| {
            if tensor.nb()[dim].is_multiple_of(unit) {
                this.size(format!("{role}_nb{dim}"), tensor.nb()[dim] / unit)
            } else {
                this.fail(format!("`{role}` with a stride of {} bytes", tensor.nb()[dim]))
            }
        })
    }

    /// Like [`Encoder::strides`], but 0 in dimensions where the tensor is one wide, so that it broadcasts.
    #[must_use]
    pub fn broadcast_strides(self, role: &str, id: TensorId, dims: &[usize]) -> Self {
        let ne = self.cx.tensor(id).ne();
        dims.iter().fold(self, |this, &dim| {
            if ne[dim] == 1 { this.size(format!("{role}_nb{dim}"), 0) } else { this.strides(role, id, &[dim]) }
        })
    }

    /// A parameter `name: u32` that counts something.
    #[must_use]
    pub fn size(mut self, name: impl Into<String>, value: usize) -> Self {
        let name = name.into();
        match u32::try_from(value) {
            Ok(bits) => self.dispatch.params.push(Param { name, kind: ParamType::U32, bits }),
            Err(_) => return self.fail(format!("{name} = {value}, more than 32 bits")),
        }
        self
    }

    /// A parameter `name: f32`.
    #[must_use]
    pub fn float(mut self, name: impl Into<String>, value: f32) -> Self {
        self.dispatch.params.push(Param { name: name.into(), kind: ParamType::F32, bits: value.to_bits() });
        self
    }

    /// A switch the source is composed with.
    #[must_use]
    pub fn switch(mut self, name: &'static str, value: Switch) -> Self {
        self.dispatch.switches.push((name, value));
        self
    }

    /// Threads per workgroup (64 unless said otherwise).
    #[must_use]
    pub fn workgroup(mut self, threads: u32) -> Self {
        self.dispatch.workgroup = threads;
        self
    }

    /// What [`Encoder::workgroup`] was given.
    pub const fn threads_per_group(&self) -> usize {
        self.dispatch.workgroup as usize
    }

    /// One thread per element of `count`; the source finds its index by `thread_index(workgroup_id, num_workgroups,
    /// local_index)` and stops at the parameter `count`.
    #[must_use]
    pub fn threads(self, count: usize) -> Self {
        let groups = count.div_ceil(self.dispatch.workgroup as usize);
        self.size("count", count).groups(groups)
    }

    /// `groups` workgroups in a row; the source finds its own by `group_index(workgroup_id, num_workgroups)` and stops
    /// where that is past its work, since the grid may be rounded up.
    #[must_use]
    pub fn groups(mut self, groups: usize) -> Self {
        let limit = self.cx.caps.max_groups as usize;
        let (x, y) = if groups <= limit { (groups, 1) } else { (limit, groups.div_ceil(limit)) };
        if y > limit {
            return self.fail(format!("{groups} workgroups, more than {limit} by {limit}"));
        }
        self.dispatch.grid = [x as u32, y as u32, 1];
        self
    }

    fn fail(mut self, detail: String) -> Self {
        let error = self.cx.unsupported(self.op, detail);
        self.error.get_or_insert(error);
        self
    }

    /// Binds read-write what is in one buffer with something written or shared: a caller may have put a weight beside a
    /// cache, and wgpu refuses one buffer bound both ways.
    fn share_places(&mut self) {
        let bindings = &mut self.dispatch.bindings;
        let shared: Vec<_> =
            bindings.iter().filter(|binding| binding.access != Access::Read).map(|binding| binding.place).collect();
        for binding in bindings.iter_mut() {
            if binding.access == Access::Read && shared.contains(&binding.place) {
                binding.access = Access::SharedRead;
            }
        }
    }

    /// The dispatch.
    ///
    /// # Errors
    /// The first thing that did not fit: a tensor without memory, a number over 32 bits, too many parameters or bindings.
    pub fn finish(mut self) -> Result<Dispatch, DeviceError> {
        self.share_places();
        let bytes = self.dispatch.params.len() * size_of::<u32>();
        let bindings = self.dispatch.bindings.len();
        let this = if bytes > MAX_PARAM_BYTES {
            self.fail(format!("{bytes} bytes of parameters, more than {MAX_PARAM_BYTES}"))
        } else if bindings > self.cx.caps.max_bindings as usize {
            let limit = self.cx.caps.max_bindings;
            self.fail(format!("{bindings} buffers, more than the adapter's {limit}"))
        } else {
            self
        };
        this.error.map_or(Ok(this.dispatch), Err)
    }

    /// The dispatch, for a node that needs no other.
    ///
    /// # Errors
    /// See [`Encoder::finish`].
    pub fn single(self) -> Result<Vec<Dispatch>, DeviceError> {
        Ok(vec![self.finish()?])
    }
}
