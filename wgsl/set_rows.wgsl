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
    let c = unravel(i, vec3<u32>(p.src_ne0, p.src_ne1, p.src_ne2));
    let at = c.y * p.ids_nb0 + (c.z % p.ids_ne1) * p.ids_nb1 + (c.w % p.ids_ne2) * p.ids_nb2;
    let row = bitcast<u32>(ids_load(at));
    // A negative index is a large unsigned one, so that one comparison finds both ends.
    var inside = row < p.dst_ne1;
    {% if wide %}
    inside = inside && ids_load_high(at) == 0;
    {% endif %}
    if inside {
        dst_store(
            c.x + row * p.dst_nb1 + c.z * p.dst_nb2 + c.w * p.dst_nb3,
            src_load(c.x + c.y * p.src_nb1 + c.z * p.src_nb2 + c.w * p.src_nb3),
        );
    }
}
