{#- OUT_PROD: one workgroup per tile of the result, one thread per element; slices of both sources pass through workgroup
    memory.

    Switch: tile (rows and columns of a tile, and the depth of a slice). -#}
var<workgroup> a_slice: array<f32, {{ tile * tile }}>;
var<workgroup> b_slice: array<f32, {{ tile * tile }}>;

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let row_tiles = (p.m + {{ tile - 1 }}u) / {{ tile }}u;
    let column_tiles = (p.n + {{ tile - 1 }}u) / {{ tile }}u;
    let own = group_index(group, groups);
    let product = own / (row_tiles * column_tiles);
    if (product >= p.products) {
        return;
    }
    let row = own % row_tiles * {{ tile }}u;
    let column = own / row_tiles % column_tiles * {{ tile }}u;
    let i2 = product % p.b_ne2;
    let i3 = product / p.b_ne2;
    let a = i2 / p.repeat2 * p.a_nb2 + i3 / p.repeat3 * p.a_nb3;
    let b = i2 * p.b_nb2 + i3 * p.b_nb3;
    let x = local % {{ tile }}u;
    let y = local / {{ tile }}u;
    var sum = 0.0;
    for (var start = 0u; start < p.k; start += {{ tile }}u) {
        workgroupBarrier();
        a_slice[local] = 0.0;
        b_slice[local] = 0.0;
        if (start + y < p.k) {
            if (row + x < p.m) {
                a_slice[local] = a_load(a + (start + y) * p.a_nb1 + row + x);
            }
            if (column + x < p.n) {
                b_slice[local] = b_load(b + (start + y) * p.b_nb1 + (column + x) * p.b_nb0);
            }
        }
        workgroupBarrier();
        var part = 0.0;
{%- for k in range(tile) %}
        part += a_slice[{{ k * tile }}u + x] * b_slice[{{ k * tile }}u + y];
{%- endfor %}
        sum += part;
    }
    if (row + x < p.m && column + y < p.n) {
        y_store((product * p.n + column + y) * p.m + row + x, sum);
    }
}
