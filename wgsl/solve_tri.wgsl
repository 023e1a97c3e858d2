{#- SOLVE_TRI: one thread per column of a right-hand side, by forward substitution over some of the rows; it reads what
    it has written, and what dispatches before it have. -#}
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
    let plane = i / p.columns;
    let a = plane * p.size * p.size;
    let column = plane * p.size * p.columns + i % p.columns;
    for (var row = p.first; row < p.end; row++) {
        // Sums of a few products each are summed: one running sum of all would lose digits.
        var sum = 0.0;
        for (var start = 0u; start < row; start += 16u) {
            var part = 0.0;
{%- for turn in range(16) %}
            if start + {{ turn }}u < row {
                part += a_load(a + row * p.size + start + {{ turn }}u)
                    * x_data[p.x_offset + column + (start + {{ turn }}u) * p.columns];
            }
{%- endfor %}
            sum += part;
        }
        x_store(column + row * p.columns, (b_load(column + row * p.columns) - sum) / a_load(a + row * p.size + row));
    }
}
