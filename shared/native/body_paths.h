/* Tree generation and evaluation: FSS.PathGen and FSS.PathEval. Included by dpf_body.h, once per instruction set. */

/* ---- FSS.PathGen ---- */

LANE_FN V4 NAME(load_group)(const uint8_t *blocks, size_t available) {
    uint8_t four[VECTOR] = {0};
    if (available >= GROUP) return NAME(v_load)(blocks);
    memcpy(four, blocks, available * BLOCK);
    return NAME(v_load)(four);
}

LANE_FN void NAME(store_group)(uint8_t *blocks, size_t available, V4 x) {
    uint8_t four[VECTOR];
    if (available >= GROUP) {
        NAME(v_store)(blocks, x);
        return;
    }
    NAME(v_store)(four, x);
    memcpy(blocks, four, available * BLOCK);
}

LANE_FN void NAME(store_bits)(uint8_t *bits, size_t available, V4 x) {
    uint8_t four[VECTOR];
    NAME(v_store)(four, x);
    for (size_t i = 0; i < smaller(GROUP, available); i++) bits[i] = four[BLOCK * i] & 1;
}

/* Both children of n nodes: nodes[i] -> children[2 * i] on the left, children[2 * i + 1] on the right. */
LANE_FN void NAME(hash_children)(const NAME(key) *left, const NAME(key) *right, const V4 *nodes, V4 *children,
                                 const int n) {
    V4 s[IN_FLIGHT];
    for (int i = 0; i < n; i++) {
        s[i] = NAME(sigma_seed)(nodes[i]);
        children[2 * i] = NAME(v_xor)(s[i], left->k[0]);
        children[2 * i + 1] = NAME(v_xor)(s[i], right->k[0]);
    }
    for (int round = 1; round < ROUNDS; round++) {
        const V4 left_round = left->k[round], right_round = right->k[round];
        for (int i = 0; i < n; i++) {
            children[2 * i] = NAME(v_aes)(children[2 * i], left_round);
            children[2 * i + 1] = NAME(v_aes)(children[2 * i + 1], right_round);
        }
    }
    for (int i = 0; i < n; i++) {
        children[2 * i] = NAME(v_aeslast)(children[2 * i], NAME(v_xor)(s[i], left->k[ROUNDS]));
        children[2 * i + 1] = NAME(v_aeslast)(children[2 * i + 1], NAME(v_xor)(s[i], right->k[ROUNDS]));
    }
}

/* x where mask is zero, y where it is all ones. */
LANE_FN V4 NAME(choose)(V4 mask, V4 x, V4 y) { return NAME(v_xor)(x, NAME(v_and)(mask, NAME(v_xor)(x, y))); }

/* One level of PathGen for four slots, given all children c: the correction words, and both nodes one step down. */
LANE_FN void NAME(gen_level)(V4 goes_right, const V4 c[4], V4 nodes[2], V4 *left_word, V4 *right_word) {
    const V4 one = NAME(v_bcast)(NAME(lowest_bit)), seed = NAME(v_bcast)(NAME(seed_bits));
    const V4 both_left = NAME(v_xor)(c[0], c[2]), both_right = NAME(v_xor)(c[1], c[3]);
    const V4 lost = NAME(v_and)(NAME(choose)(goes_right, both_right, both_left), seed);
    const V4 right_bit = NAME(v_and)(goes_right, one), left_bit = NAME(v_xor)(right_bit, one);
    *left_word = NAME(v_xor)(lost, NAME(v_and)(NAME(v_xor)(both_left, left_bit), one));
    *right_word = NAME(v_xor)(lost, NAME(v_and)(NAME(v_xor)(both_right, right_bit), one));
    const V4 word = NAME(choose)(goes_right, *left_word, *right_word);
    for (int b = 0; b < 2; b++) {
        const V4 kept = NAME(choose)(goes_right, c[2 * b], c[2 * b + 1]);
        nodes[b] = NAME(v_xor)(kept, NAME(v_and)(NAME(v_control)(nodes[b]), word));
    }
}

#define GEN_GROUPS (IN_FLIGHT >= 8 ? 2 : 1)

TARGET static void NAME(generate)(const uint8_t *keys, const uint8_t *roots0, const uint8_t *roots1,
                                  const int64_t *alpha, size_t slots, int depth, uint8_t *left, uint8_t *right,
                                  uint8_t *leaf0, uint8_t *leaf1) {
    const NAME(key) left_key = NAME(make_key)(keys), right_key = NAME(make_key)(keys + BLOCK);
    for (size_t slot = 0; slot < slots; slot += GROUP * GEN_GROUPS) {
        V4 nodes[2 * GEN_GROUPS], target[GEN_GROUPS];
        for (int g = 0; g < GEN_GROUPS; g++) {
            const size_t first = smaller(slot + GROUP * (size_t)g, slots), available = slots - first;
            uint32_t words[GROUP * 4] = {0};
            for (size_t i = 0; i < smaller(GROUP, available); i++) words[4 * i] = (uint32_t)alpha[first + i];
            target[g] = NAME(v_load)((const uint8_t *)words);
            nodes[2 * g] = NAME(v_and)(NAME(load_group)(roots0 + first * BLOCK, available), NAME(v_bcast)(NAME(seed_bits)));
            nodes[2 * g + 1] = NAME(v_and)(NAME(load_group)(roots1 + first * BLOCK, available), NAME(v_bcast)(NAME(seed_bits)));
            nodes[2 * g + 1] = NAME(v_xor)(nodes[2 * g + 1], NAME(v_bcast)(NAME(lowest_bit)));
        }
        for (int level = 0; level < depth; level++) {
            V4 left_word[GEN_GROUPS], right_word[GEN_GROUPS], children[4 * GEN_GROUPS];
            NAME(hash_children)(&left_key, &right_key, nodes, children, 2 * GEN_GROUPS);
            for (int g = 0; g < GEN_GROUPS; g++)
                NAME(gen_level)(NAME(v_bit)(target[g], depth - 1 - level), children + 4 * g, nodes + 2 * g,
                                &left_word[g], &right_word[g]);
            for (int g = 0; g < GEN_GROUPS; g++) {
                const size_t first = smaller(slot + GROUP * (size_t)g, slots), at = (size_t)level * slots + first;
                NAME(store_group)(left + at * BLOCK, slots - first, left_word[g]);
                NAME(store_bits)(right + at, slots - first, right_word[g]);
            }
        }
        for (int g = 0; g < GEN_GROUPS; g++) {
            const size_t first = smaller(slot + GROUP * (size_t)g, slots);
            NAME(store_group)(leaf0 + first * BLOCK, slots - first, nodes[2 * g]);
            NAME(store_group)(leaf1 + first * BLOCK, slots - first, nodes[2 * g + 1]);
        }
    }
}

/* ---- FSS.PathEval over many leaves ---- */

TARGET static void NAME(load_tree)(NAME(tree) *tree, const paths_t *p, const uint8_t *schedules, size_t session,
                                   size_t slot) {
    const size_t available = p->slots - slot, depth = (size_t)p->depth;
    const V4 seed = NAME(v_bcast)(NAME(seed_bits)), party = NAME(v_bcast)(NAME(lowest_bit));
    tree->left_key = NAME(load_key)(schedules);
    tree->right_key = NAME(load_key)(schedules + (ROUNDS + 1) * BLOCK);
    tree->roots = NAME(v_and)(NAME(load_group)(p->roots + (session * p->slots + slot) * BLOCK, available), seed);
    if (p->party) tree->roots = NAME(v_xor)(tree->roots, party);
    for (size_t level = 0; level < depth; level++) {
        const size_t at = (session * depth + level) * p->slots + slot;
        uint64_t bits[GROUP * 2] = {0};
        for (size_t i = 0; i < smaller(GROUP, available); i++) bits[2 * i] = p->right[at + i] & 1;
        tree->left[level] = NAME(load_group)(p->left + at * BLOCK, available);
        tree->right[level] = NAME(v_xor)(NAME(v_and)(tree->left[level], seed), NAME(v_load)((const uint8_t *)bits));
    }
}

/* One step towards one child, for the walk from the root to a chunk. */
LANE_FN V4 NAME(child)(const NAME(key) *key, V4 node, V4 word) {
    const V4 s = NAME(sigma_seed)(node);
    V4 x = NAME(v_xor)(s, key->k[0]);
    for (int round = 1; round < ROUNDS; round++) x = NAME(v_aes)(x, key->k[round]);
    x = NAME(v_aeslast)(x, NAME(v_xor)(s, key->k[ROUNDS]));
    return NAME(v_xor)(x, NAME(v_and)(NAME(v_control)(node), word));
}

#define PARENTS (IN_FLIGHT / 2)

LANE_FN void NAME(both_children)(const NAME(tree) *tree, int level, const V4 *nodes, V4 *children, const int n) {
    V4 x[2 * PARENTS];
    NAME(hash_children)(&tree->left_key, &tree->right_key, nodes, x, n);
    for (int i = 0; i < n; i++) {
        const V4 t = NAME(v_control)(nodes[i]);
        children[2 * i] = NAME(v_xor)(x[2 * i], NAME(v_and)(t, tree->left[level]));
        children[2 * i + 1] = NAME(v_xor)(x[2 * i + 1], NAME(v_and)(t, tree->right[level]));
    }
}

/* The nodes of `count` leaves starting with `first`, a multiple of 2^chunk_bits. Uses both buffers, returns one. */
TARGET static V4 *NAME(expand_chunk)(const NAME(tree) *tree, int depth, int chunk_bits, size_t first, size_t count,
                                     V4 *nodes, V4 *spare) {
    const int walk = depth - chunk_bits;
    V4 node = tree->roots;
    for (int level = 0; level < walk; level++) {
        const int right = (int)(first >> (depth - 1 - level)) & 1;
        node = NAME(child)(right ? &tree->right_key : &tree->left_key, node, right ? tree->right[level] : tree->left[level]);
    }
    nodes[0] = node;
    for (int level = walk; level < depth; level++) {
        const size_t below = (size_t)1 << (depth - level), parents = (count + below - 1) / below;
        size_t i = 0;
        for (; i + PARENTS <= parents; i += PARENTS)
            NAME(both_children)(tree, level, nodes + i, spare + 2 * i, PARENTS);
        for (; i < parents; i++) NAME(both_children)(tree, level, nodes + i, spare + 2 * i, 1);
        V4 *const swap = nodes;
        nodes = spare, spare = swap;
    }
    return nodes;
}

static int NAME(chunk_bits_for)(int depth, size_t bytes_a_leaf) {
    int bits = 8; /* CHUNK_LEAVES */
    while (bits > 3 && (bytes_a_leaf << bits) > 160 * 1024) bits--;
    return bits < depth ? bits : depth;
}

/* Key schedules of every session: (sessions, 3, 11, 16). */
TARGET static uint8_t *NAME(schedules_of)(const paths_t *p) {
    const size_t one = (ROUNDS + 1) * BLOCK;
    uint8_t *schedules = take_lines(p->sessions * 3 * one);
    for (size_t i = 0; schedules && i < p->sessions * 3; i++) NAME(schedule)(p->keys + i * BLOCK, schedules + i * one);
    return schedules;
}

#define SCHEDULES(base, session) ((base) + (session) * 3 * (ROUNDS + 1) * BLOCK)

/* Space for the leaves of one chunk, rounded up so that IN_FLIGHT vectors can always be read and written. */
#define NODE_BYTES ((CHUNK_LEAVES + IN_FLIGHT) * sizeof(V4))

/* The states are written group by group: (ceil(slots / 4), leaves, 4, 16). */
TARGET static int NAME(expand)(const paths_t *p, size_t leaves, uint8_t *states) {
    uint8_t *schedules = NAME(schedules_of)(p), *memory = take_lines(2 * NODE_BYTES + sizeof(NAME(tree)));
    const int bits = NAME(chunk_bits_for)(p->depth, VECTOR);
    const size_t chunk = (size_t)1 << bits;
    const int failed = !schedules || !memory;
    for (size_t slot = 0; !failed && slot < p->slots; slot += GROUP) {
        NAME(tree) *tree = (NAME(tree) *)(memory + 2 * NODE_BYTES);
        NAME(load_tree)(tree, p, schedules, 0, slot);
        for (size_t first = 0; first < leaves; first += chunk) {
            const size_t count = smaller(chunk, leaves - first);
            const V4 *nodes = NAME(expand_chunk)(tree, p->depth, bits, first, count, (V4 *)memory,
                                                 (V4 *)(memory + NODE_BYTES));
            memcpy(states + (slot * leaves + first * GROUP) * BLOCK, nodes, count * VECTOR);
        }
    }
    free(schedules), free(memory);
    return failed;
}
