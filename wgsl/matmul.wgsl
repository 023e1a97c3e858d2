{#- MUL_MAT and MUL_MAT_ID for many columns. One workgroup per tile of the result; slices of both sources pass through
    workgroup memory, and each thread holds 4 by 4 results.

    Switches: tile (rows and columns of a tile; (tile / 4)² threads), by_id (MUL_MAT_ID: one workgroup per block of rows
    of one expert, which looks for its expert's columns itself). -#}
{%- set depth = 16 %}
{%- set side = tile // 4 %}
// Slices are stored k by k; one word of padding keeps the threads that fill them on different banks.
var<workgroup> a_slice: array<f32, {{ depth * (tile + 1) }}>;
var<workgroup> b_slice: array<f32, {{ depth * (tile + 1) }}>;
{%- if by_id %}

// Columns of this expert among {{ listed }} pairs of token and slot.
var<workgroup> listed: array<u32, {{ listed }}>;
var<workgroup> listed_count: atomic<u32>;
{%- endif %}

// Where a column of the second source starts.
fn column_start(b: u32, column: u32) -> u32 {
{%- if by_id %}
    let pair = listed[column];
    return b + pair % p.used % p.b_ne1 * p.b_nb1 + pair / p.used * p.b_nb2;
{%- else %}
    return b + column * p.b_nb1;
{%- endif %}
}

// One tile of the result; of its columns, which start at the column `first`, `columns` exist.
fn tile_product(a: u32, length: u32, row: u32, b: u32, first: u32, columns: u32, local: u32) -> array<vec4<f32>, 4> {
    var sums: array<vec4<f32>, 4>;
    let own_row = 4u * (local % {{ side }}u);
    let own_column = 4u * (local / {{ side }}u);
    for (var start = 0u; start < length; start += {{ depth }}u) {
        workgroupBarrier();
        for (var i = local; i < {{ depth * tile }}u; i += {{ wg }}u) {
            let k = i % {{ depth }}u;
            let line = i / {{ depth }}u;
            let at = k * {{ tile + 1 }}u + line;
            a_slice[at] = 0.0;
            b_slice[at] = 0.0;
            if (start + k < length) {
                if (row + line < p.m) {
                    a_slice[at] = a_load(a + (row + line) * p.a_nb1 + start + k);
                }
                if (line < columns) {
                    b_slice[at] = b_load(column_start(b, first + line) + (start + k) * p.b_nb0);
                }
            }
        }
        workgroupBarrier();
        for (var k = 0u; k < {{ depth }}u; k++) {
            let at_a = k * {{ tile + 1 }}u + own_row;
            let at_b = k * {{ tile + 1 }}u + own_column;
            let rows = vec4(a_slice[at_a], a_slice[at_a + 1u], a_slice[at_a + 2u], a_slice[at_a + 3u]);
{%- for column in range(4) %}
            sums[{{ column }}] += rows * b_slice[at_b + {{ column }}u];
{%- endfor %}
        }
    }
    return sums;
}

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let own_row = 4u * (local % {{ side }}u);
    let own_column = 4u * (local / {{ side }}u);
    let row_tiles = (p.m + {{ tile - 1 }}u) / {{ tile }}u;
    let row = group_index(group, groups) % row_tiles * {{ tile }}u;
{%- if by_id %}
    // One more than there are experts: the last takes the ids outside the table, whose columns are zero.
    let expert = group_index(group, groups) / row_tiles;
    if (expert > p.experts) {
        return;
    }
    let a = expert * p.a_nb2;
    let length = select(0u, p.k, expert < p.experts);
    let pairs = p.used * p.tokens;
    for (var start = 0u; start < pairs; start += {{ listed }}u) {
        workgroupBarrier();
        if (local == 0u) {
            atomicStore(&listed_count, 0u);
        }
        workgroupBarrier();
        let end = min(start + {{ listed }}u, pairs);
        for (var pair = start + local; pair < end; pair += {{ wg }}u) {
            // A negative id is a large unsigned one.
            let id = min(u32(ids_load(pair % p.used * p.ids_nb0 + pair / p.used * p.ids_nb1)), p.experts);
            if (id == expert) {
                listed[atomicAdd(&listed_count, 1u)] = pair;
            }
        }
        let count = workgroupUniformLoad(&listed_count);
        for (var first = 0u; first < count; first += {{ tile }}u) {
            let columns = min(count - first, {{ tile }}u);
            let sums = tile_product(a, length, row, 0u, first, columns, local);
            for (var j = 0u; j < 4u; j++) {
                for (var i = 0u; i < 4u; i++) {
                    if (own_column + j < columns && row + own_row + i < p.m) {
                        y_store(listed[first + own_column + j] * p.m + row + own_row + i, sums[j][i]);
                    }
                }
            }
        }
    }
{%- else %}
    let column_tiles = (p.n + {{ tile - 1 }}u) / {{ tile }}u;
    let tiles = row_tiles * column_tiles;
    let product = group_index(group, groups) / tiles;
    if (product >= p.products) {
        return;
    }
    let first = group_index(group, groups) / row_tiles % column_tiles * {{ tile }}u;
    let i2 = product % p.b_ne2;
    let i3 = product / p.b_ne2;
    let a = i2 / p.repeat2 * p.a_nb2 + i3 / p.repeat3 * p.a_nb3;
    let b = i2 * p.b_nb2 + i3 * p.b_nb3;
    let columns = min(p.n - first, {{ tile }}u);
    let sums = tile_product(a, p.k, row, b, first, columns, local);
    for (var j = 0u; j < 4u; j++) {
        for (var i = 0u; i < 4u; i++) {
            if (own_column + j < columns && row + own_row + i < p.m) {
                y_store((product * p.n + first + own_column + j) * p.m + row + own_row + i, sums[j][i]);
            }
        }
    }
{%- endif %}
}
