{#- ARGMAX: one workgroup per row; of equals the first, and NaN above all numbers, as in a descending ARGSORT. -#}
{%- from "order" import order %}
{{- order(true) }}
var<workgroup> keys: array<u32, {{ wg }}>;
var<workgroup> indices: array<u32, {{ wg }}>;

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let row = group_index(group, groups);
    if (row >= p.y_ne0) {
        return;
    }
    // Threads without an element lose to every one.
    var best_key = 0xffffffffu;
    var best = 0xffffffffu;
    for (var start = local; start < p.x_ne0; start += {{ 4 * wg }}u) {
{%- for turn in range(4) %}
        if (start + {{ turn * wg }}u < p.x_ne0) {
            let own = key(x_load(row * p.x_nb1 + start + {{ turn * wg }}u));
            if (before(own, start + {{ turn * wg }}u, best_key, best)) {
                best_key = own;
                best = start + {{ turn * wg }}u;
            }
        }
{%- endfor %}
    }
    keys[local] = best_key;
    indices[local] = best;
    for (var half = {{ wg // 2 }}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (local < half && before(keys[local + half], indices[local + half], keys[local], indices[local])) {
            keys[local] = keys[local + half];
            indices[local] = indices[local + half];
        }
    }
    if (local == 0u) {
        y_store(row, i32(indices[0]));
    }
}
