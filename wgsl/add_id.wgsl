{#- ADD_ID. -#}
{% from "index" import unravel %}
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
    var sum = a_load(c.x + c.y * p.a_nb1 + c.z * p.a_nb2 + c.w * p.a_nb3);
    // A negative id is a large unsigned one, so that one comparison finds both ends.
    let row = bitcast<u32>(ids_load(c.y * p.ids_nb0 + c.z * p.ids_nb1));
    if row < p.b_ne1 {
        sum += b_load(c.x + row * p.b_nb1);
    }
    dst_store(i, sum);
}
