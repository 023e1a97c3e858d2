{#- GET_ROWS_BACK: each element of the result looks for the rows that were picked from its own. Indices outside the
    result match no row. -#}
fn picked_value(pick: u32, row: u32, column: u32) -> f32 {
    if pick < p.picked {
        if bitcast<u32>(ids_load(pick * p.ids_nb0)) == row {
            return src_load(pick * p.src_nb1 + column);
        }
    }
    return 0.0;
}

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = thread_index(group, groups, local);
    if i >= p.count {
        return;
    }
    let row = i / p.dst_ne0;
    let column = i - row * p.dst_ne0;
    // Sums of a few rows each are summed, and those of a few sums: one running sum of all would lose digits.
    var sum = 0.0;
    var block = 0.0;
    for (var start = 0u; start < p.picked; start += 32u) {
        var part = 0.0;
{%- for turn in range(32) %}
        part += picked_value(start + {{ turn }}u, row, column);
{%- endfor %}
        block += part;
        if start % 1024u == 992u {
            sum += block;
            block = 0.0;
        }
    }
    dst_store(i, sum + block);
}
