{#- ARGSORT: the indices that sort each row; equal values keep their order.

    Switches: descending; slots (the row's length rounded up to a power of two: a bitonic sort in workgroup memory, one
    workgroup per row) or 0 (a row that does not fit there: every thread counts the elements before its own). -#}
// Integers in the order of the floats: both zeros equal, every NaN above all numbers.
fn key(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let magnitude = bits & 0x7fffffffu;
    var order = select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
    order = select(order, 0x80000000u, magnitude == 0u);
    order = select(order, 0xffffffffu, magnitude > 0x7f800000u);
    return {% if descending %}~order{% else %}order{% endif %};
}

// Whether the element (key, index) comes before another.
fn before(a: u32, at_a: u32, b: u32, at_b: u32) -> bool {
    return a < b || (a == b && at_a < at_b);
}

fn row_start(row: u32) -> u32 {
    return row % p.y_ne1 * p.x_nb1 + row / p.y_ne1 % p.y_ne2 * p.x_nb2 + row / (p.y_ne1 * p.y_ne2) * p.x_nb3;
}

{% if slots > 0 -%}
var<workgroup> keys: array<u32, {{ slots }}>;
var<workgroup> indices: array<u32, {{ slots }}>;

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
    for (var i = local; i < {{ slots }}u; i += {{ wg }}u) {
        // Padding comes after every element: the largest key, and an index past the row.
        keys[i] = 0xffffffffu;
        if (i < p.y_ne0) {
            keys[i] = key(x_load(x + i));
        }
        indices[i] = i;
    }
    for (var run = 2u; run <= {{ slots }}u; run *= 2u) {
        for (var step = run / 2u; step > 0u; step /= 2u) {
            workgroupBarrier();
            for (var pair = local; pair < {{ slots // 2 }}u; pair += {{ wg }}u) {
                let low = 2u * pair - (pair & (step - 1u));
                let high = low + step;
                let rising = (low & run) == 0u;
                let low_key = keys[low];
                let high_key = keys[high];
                let low_index = indices[low];
                let high_index = indices[high];
                if (before(high_key, high_index, low_key, low_index) == rising) {
                    keys[low] = high_key;
                    keys[high] = low_key;
                    indices[low] = high_index;
                    indices[high] = low_index;
                }
            }
        }
    }
    workgroupBarrier();
    for (var i = local; i < p.y_ne0; i += {{ wg }}u) {
        y_store(row * p.y_ne0 + i, i32(indices[i]));
    }
}
{%- else -%}
var<workgroup> keys: array<u32, {{ wg }}>;

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let blocks = (p.y_ne0 + {{ wg - 1 }}u) / {{ wg }}u;
    let row = group_index(group, groups) / blocks;
    if (row >= p.rows) {
        return;
    }
    let x = row_start(row);
    let own = group_index(group, groups) % blocks * {{ wg }}u + local;
    let own_key = key(x_load(x + min(own, p.y_ne0 - 1u)));
    var rank = 0u;
    for (var start = 0u; start < p.y_ne0; start += {{ wg }}u) {
        workgroupBarrier();
        // Past the end of the row nothing is counted.
        keys[local] = key(x_load(x + min(start + local, p.y_ne0 - 1u)));
        workgroupBarrier();
        let count = min({{ wg }}u, p.y_ne0 - start);
        for (var i = 0u; i < count; i++) {
            rank += select(0u, 1u, before(keys[i], start + i, own_key, own));
        }
    }
    if (own < p.y_ne0) {
        y_store(row * p.y_ne0 + rank, i32(own));
    }
}
{%- endif %}
