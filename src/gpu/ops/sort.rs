//! ARGSORT and TOP_K.

use super::{MAX_TURNS, threads_for};
use crate::device::DeviceError;
use crate::gpu::dispatch::{Context, Dispatch, Encoder, Switch};
use crate::graph::{SortOrder, TensorId};

/// Bytes of workgroup memory per element: its key and its index.
const SLOT_BYTES: usize = 8;

/// Encodes an ARGSORT node. A row that does not fit workgroup memory is sorted in the result, in many dispatches.
///
/// # Errors
/// [`DeviceError::Unsupported`] when something does not fit 32 bits.
pub fn argsort(cx: &Context<'_>, node: TensorId, order: SortOrder) -> Result<Vec<Dispatch>, DeviceError> {
    let sort = Sort::new(cx, node, order == SortOrder::Descending)?;
    if sort.fits(sort.length) { Ok(vec![sort.whole_rows()?]) } else { sort.in_result(false) }
}

/// Encodes a TOP_K node. Of a row that does not fit workgroup memory the elements are picked first and sorted then.
///
/// # Errors
/// [`DeviceError::Unsupported`] when something does not fit 32 bits, or rows are too long for one workgroup to go over.
pub fn top_k(cx: &Context<'_>, node: TensorId) -> Result<Vec<Dispatch>, DeviceError> {
    let sort = Sort::new(cx, node, true)?;
    if sort.fits(sort.length) {
        return Ok(vec![sort.whole_rows()?]);
    }
    let mut dispatches = vec![sort.select()?];
    dispatches.extend(sort.in_result(true)?);
    Ok(dispatches)
}

/// Rows to sort, and how many of the indices of each are wanted.
struct Sort<'a> {
    cx: &'a Context<'a>,
    node: TensorId,
    source: TensorId,
    descending: bool,
    length: usize,
    wanted: usize,
    rows: usize,
}

impl<'a> Sort<'a> {
    fn new(cx: &'a Context<'a>, node: TensorId, descending: bool) -> Result<Self, DeviceError> {
        let source = cx.source(node, 0)?;
        let layout = cx.tensor(node).layout();
        let length = cx.tensor(source).ne()[0];
        Ok(Self { cx, node, source, descending, length, wanted: layout.ne[0], rows: layout.rows() })
    }

    /// Elements that a workgroup can sort.
    fn most_slots(&self) -> usize {
        1 << (self.cx.caps.max_workgroup_bytes as usize / SLOT_BYTES).max(2).ilog2()
    }

    fn fits(&self, length: usize) -> bool {
        length <= self.most_slots()
    }

    fn stage(&self, stage: &'static str, slots: usize, picked: bool) -> Encoder<'a> {
        self.cx
            .kernel("argsort", self.node)
            .workgroup(threads_for(2 * slots, self.cx.caps))
            .switch("stage", Switch::Str(stage))
            .switch("descending", Switch::Bool(self.descending))
            .switch("slots", Switch::Int(slots as u32))
            .switch("picked", Switch::Bool(picked))
            .input("x", self.source)
            .strides("x", self.source, &[1, 2, 3])
            .output("y", self.node)
            .shape("y", self.node, &[0, 1, 2])
    }

    /// Each row by one workgroup, in its memory.
    fn whole_rows(&self) -> Result<Dispatch, DeviceError> {
        let slots = self.length.next_power_of_two().max(2);
        let stage = self.stage("row", slots, false).size("length", self.length).size("rows", self.rows);
        stage.groups(self.rows).finish()
    }

    /// Picks what is wanted, in no order.
    fn select(&self) -> Result<Dispatch, DeviceError> {
        let stage = self.stage("select", self.most_slots(), false);
        // Eight passes that count, and one that takes, each with eight elements at a time.
        if 9 * self.length.div_ceil(8 * stage.threads_per_group()) > MAX_TURNS {
            let detail = format!("rows of {} elements, which one workgroup would pick from", self.length);
            return Err(self.cx.unsupported(self.cx.tensor(self.node).kind(), detail));
        }
        stage.size("length", self.length).size("rows", self.rows).groups(self.rows).finish()
    }

    /// Sorts indices that lie in the result (`picked`), or all: first blocks, then runs of two blocks, of four and so on.
    fn in_result(&self, picked: bool) -> Result<Vec<Dispatch>, DeviceError> {
        let slots = self.wanted.next_power_of_two().clamp(2, self.most_slots());
        let blocks = self.wanted.div_ceil(slots);
        let in_blocks =
            |stage| self.stage(stage, slots, picked).size("rows", self.rows).groups(self.rows * blocks).finish();
        let padded = self.wanted.next_power_of_two();
        let far = |step: usize, mirror| {
            let stage = self.stage("far", slots, picked).switch("mirror", Switch::Bool(mirror));
            stage.size("pairs", padded / 2).size("step", step).threads(self.rows * (padded / 2)).finish()
        };
        let mut dispatches = vec![in_blocks("block")?];
        let mut run = 2 * slots;
        while run <= padded {
            dispatches.push(far(run / 2, true)?);
            let mut step = run / 4;
            while step >= slots {
                dispatches.push(far(step, false)?);
                step /= 2;
            }
            dispatches.push(in_blocks("near")?);
            run *= 2;
        }
        Ok(dispatches)
    }
}
