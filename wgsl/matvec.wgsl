{#- MUL_MAT and MUL_MAT_ID for few columns. One workgroup per 4 rows of the matrix and all columns of one product: its
    threads share the sum over k.

    Switches: columns (of one product), by_id (MUL_MAT_ID: each pair of token and slot is a product of one column with the
    matrix its id picks). -#}
{% import "reduce" as reduce %}
{{- reduce.thread(subgroups) }}
{{- reduce.sum("group_sum", "vec4<f32>", wg, subgroups) }}
@compute @workgroup_size({{ wg }})
fn main(thread: Thread, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let blocks = (p.m + 3u) / 4u;
    let product = group_index(group, groups) / blocks;
    if (product >= p.products) {
        return;
    }
    let row = group_index(group, groups) % blocks * 4u;
{%- if by_id %}
    let slot = product % p.used;
    let token = product / p.used;
    let id = ids_load(slot * p.ids_nb0 + token * p.ids_nb1);
    // An id outside the table picks a matrix of zeros.
    let known = id >= 0 && u32(id) < p.experts;
    let length = select(0u, p.k, known);
    let a = select(0u, u32(id), known) * p.a_nb2;
    let b = slot % p.b_ne1 * p.b_nb1 + token * p.b_nb2;
{%- else %}
    let i2 = product % p.b_ne2;
    let i3 = product / p.b_ne2;
    let length = p.k;
    let a = i2 / p.repeat2 * p.a_nb2 + i3 / p.repeat3 * p.a_nb3;
    let b = i2 * p.b_nb2 + i3 * p.b_nb3;
{%- endif %}
    // Rows past the end repeat the last one and are not stored.
    let rows = a + min(vec4(row) + vec4(0u, 1u, 2u, 3u), vec4(p.m - 1u)) * p.a_nb1;
    var sums: array<vec4<f32>, {{ columns }}>;
    for (var i = thread.local; i < length; i += {{ wg }}u) {
        let weights = vec4(a_load(rows.x + i), a_load(rows.y + i), a_load(rows.z + i), a_load(rows.w + i));
{%- for column in range(columns) %}
        sums[{{ column }}] += weights * b_load(b + i * p.b_nb0{% if column > 0 %} + {{ column }}u * p.b_nb1{% endif %});
{%- endfor %}
    }
{%- for column in range(columns) %}
    let total{{ column }} = group_sum(sums[{{ column }}], thread);
{%- endfor %}
    let left = min(p.m - row, 4u);
    if (thread.local < left) {
{%- for column in range(columns) %}
        y_store((product * {{ columns }}u + {{ column }}u) * p.m + row + thread.local, total{{ column }}[thread.local]);
{%- endfor %}
    }
}
