{% from "activation" import function %}
{{ function("sin") }}

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
    let x = x_load(i);
    let row = i / p.row;
    let s = act(a_load(row) * x);
    dst_store(i, x + s * s * inv_b_load(row));
}
