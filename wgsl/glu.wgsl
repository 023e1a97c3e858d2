{% from "index" import unravel %}
{% from "activation" import function %}
{{ function(op) }}
{{ unravel() }}

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
    let c = unravel(i, vec3<u32>(p.dst_ne0, p.dst_ne1, p.dst_ne2));
    let a = c.x + c.y * p.a_nb1 + c.z * p.a_nb2 + c.w * p.a_nb3;
    {% if halves %}
    dst_store(i, act(a_load(a + p.act_at)) * a_load(a + p.gate_at));
    {% else %}
    let b = c.x + c.y * p.b_nb1 + c.z * p.b_nb2 + c.w * p.b_nb3;
    dst_store(i, act(a_load(a)) * b_load(b));
    {% endif %}
}
