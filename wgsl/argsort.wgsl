{#- ARGSORT and TOP_K: the indices that sort each row, equal values in their order; all of them, or the first.

    Every stage is part of a bitonic sort whose every comparison puts the lower element first, so that a row of any length
    can be thought to go on with elements that come last and never move. Stages:
    - row: a whole row in workgroup memory, whose first y_ne0 indices are stored;
    - block: each block of `slots` elements in workgroup memory; the other stages then work on the indices in y:
    - far: one step of the sort over pairs that lie too far apart for a block;
    - near: the steps after those, inside each block;
    - select: the y_ne0 indices that come first, in no order, by the digits of key and index of the last of them.
    With `picked` the elements to sort are those whose indices are in y, not all of the row.

    Switches: stage, descending, slots (a power of two), picked, mirror (far: the first step of a merge). -#}
{%- from "order" import order %}
{{- order(descending) }}
fn row_start(row: u32) -> u32 {
    return row % p.y_ne1 * p.x_nb1 + row / p.y_ne1 % p.y_ne2 * p.x_nb2 + row / (p.y_ne1 * p.y_ne2) * p.x_nb3;
}

{%- if stage == "far" %}
@compute @workgroup_size({{ wg }})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let thread = thread_index(group, groups, local);
    if (thread >= p.count) {
        return;
    }
    let row = thread / p.pairs;
    let pair = thread % p.pairs;
    let low = 2u * pair - (pair & (p.step - 1u));
{%- if mirror %}
    let high = low ^ (2u * p.step - 1u);
{%- else %}
    let high = low + p.step;
{%- endif %}
    if (high >= p.y_ne0) {
        return;
    }
    let x = row_start(row);
    let y = p.y_offset + row * p.y_ne0;
    let low_index = y_data[y + low];
    let high_index = y_data[y + high];
    let low_key = key(x_load(x + u32(low_index)));
    let high_key = key(x_load(x + u32(high_index)));
    if (before(high_key, u32(high_index), low_key, u32(low_index))) {
        y_data[y + low] = high_index;
        y_data[y + high] = low_index;
    }
}
{%- elif stage == "select" %}
var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> digit: u32;
var<workgroup> rank: u32;
var<workgroup> taken: atomic<u32>;

// Counts an element that agrees with what is known of the last one that is taken, by its next digit.
fn count(x: u32, i: u32, by_key: bool, shift: u32, mask: u32, last_key: u32, last_index: u32) {
    if (i >= p.length) {
        return;
    }
    let own = key(x_load(x + i));
    if (by_key) {
        if ((own & mask) == last_key) {
            atomicAdd(&counts[(own >> shift) & 255u], 1u);
        }
    } else if (own == last_key && (i & mask) == last_index) {
        atomicAdd(&counts[(i >> shift) & 255u], 1u);
    }
}

// Stores the index of an element that does not come after the last one that is taken.
fn take(x: u32, i: u32, y: u32, last_key: u32, last_index: u32) {
    if (i >= p.length) {
        return;
    }
    if (!before(last_key, last_index, key(x_load(x + i)), i)) {
        let slot = atomicAdd(&taken, 1u);
        if (slot < p.y_ne0) {
            y_store(y + slot, i32(i));
        }
    }
}

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let row = group_index(group, groups);
    if (row >= p.rows) {
        return;
    }
    let x = row_start(row);
    // The key and the index of the last element that is taken, digit by digit: first those of the key.
    var last_key = 0u;
    var last_index = 0u;
    var mask = 0u;
    // Its place among those that agree with the digits known so far.
    var place = p.y_ne0;
    for (var step = 0u; step < 8u; step++) {
        let shift = 24u - 8u * (step % 4u);
        if (step == 4u) {
            mask = 0u;
        }
        for (var i = local; i < 256u; i += {{ wg }}u) {
            atomicStore(&counts[i], 0u);
        }
        workgroupBarrier();
        for (var start = local; start < p.length; start += {{ 8 * wg }}u) {
{%- for turn in range(8) %}
            count(x, start + {{ turn * wg }}u, step < 4u, shift, mask, last_key, last_index);
{%- endfor %}
        }
        workgroupBarrier();
        if (local == 0u) {
            var remaining = place;
            var at = 0u;
            for (; at < 255u; at++) {
                let count = atomicLoad(&counts[at]);
                if (remaining <= count) {
                    break;
                }
                remaining -= count;
            }
            digit = at;
            rank = remaining;
            atomicStore(&taken, 0u);
        }
        let found = workgroupUniformLoad(&digit) << shift;
        place = workgroupUniformLoad(&rank);
        if (step < 4u) {
            last_key |= found;
        } else {
            last_index |= found;
        }
        mask |= 255u << shift;
    }
    for (var start = local; start < p.length; start += {{ 8 * wg }}u) {
{%- for turn in range(8) %}
        take(x, start + {{ turn * wg }}u, row * p.y_ne0, last_key, last_index);
{%- endfor %}
    }
}
{%- else %}
var<workgroup> keys: array<u32, {{ slots }}>;
var<workgroup> indices: array<u32, {{ slots }}>;

fn exchange(low: u32, high: u32) {
    let low_key = keys[low];
    let high_key = keys[high];
    let low_index = indices[low];
    let high_index = indices[high];
    if (before(high_key, high_index, low_key, low_index)) {
        keys[low] = high_key;
        keys[high] = low_key;
        indices[low] = high_index;
        indices[high] = low_index;
    }
}

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
{%- if stage == "row" %}
    let row = group_index(group, groups);
    let start = 0u;
    let length = p.length;
{%- else %}
    let blocks = (p.y_ne0 + {{ slots - 1 }}u) / {{ slots }}u;
    let row = group_index(group, groups) / blocks;
    let start = group_index(group, groups) % blocks * {{ slots }}u;
    let length = p.y_ne0;
{%- endif %}
    if (row >= p.rows) {
        return;
    }
    let x = row_start(row);
    let y = row * p.y_ne0;
    for (var i = local; i < {{ slots }}u; i += {{ wg }}u) {
        // Padding comes after every element: the largest key, and an index past any row.
        var own_key = 0xffffffffu;
        var own_index = 0xffffffffu;
        if (start + i < length) {
{%- if picked or stage == "near" %}
            own_index = u32(y_data[p.y_offset + y + start + i]);
{%- else %}
            own_index = start + i;
{%- endif %}
            own_key = key(x_load(x + own_index));
        }
        keys[i] = own_key;
        indices[i] = own_index;
    }
{%- if stage != "near" %}
    for (var run = 2u; run <= {{ slots }}u; run *= 2u) {
        workgroupBarrier();
        for (var pair = local; pair < {{ slots // 2 }}u; pair += {{ wg }}u) {
            let low = 2u * pair - (pair & (run / 2u - 1u));
            exchange(low, low ^ (run - 1u));
        }
        for (var step = run / 4u; step > 0u; step /= 2u) {
{%- else %}
        for (var step = {{ slots // 2 }}u; step > 0u; step /= 2u) {
{%- endif %}
            workgroupBarrier();
            for (var pair = local; pair < {{ slots // 2 }}u; pair += {{ wg }}u) {
                let low = 2u * pair - (pair & (step - 1u));
                exchange(low, low + step);
            }
        }
{%- if stage != "near" %}
    }
{%- endif %}
    workgroupBarrier();
    for (var i = local; i < {{ slots }}u && start + i < p.y_ne0; i += {{ wg }}u) {
        y_store(y + start + i, i32(indices[i]));
    }
}
{%- endif %}
