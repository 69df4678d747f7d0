/* The whole kernel, written once against four AES blocks side by side (V4) and included per instruction set.
 *
 * A node of the tree is one block: the seed, with the control bit t in its lowest bit. The four lanes of a V4 are
 * the same node of four neighbouring slots, so that children need no shuffling and the correction word of a level
 * is one load. Trees are cut into chunks of at most CHUNK_LEAVES leaves that stay in the nearest cache.
 */

typedef struct { V4 k[ROUNDS + 1]; } NAME(key);

/* What one session adds to the work on one group of four slots. */
typedef struct {
    NAME(key) left_key, right_key;
    V4 roots, left[MAX_DEPTH + 1], right[MAX_DEPTH + 1];
} NAME(tree);

static const uint8_t NAME(high_half)[BLOCK] = {0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255};
static const uint8_t NAME(seed_bits)[BLOCK] = {254, 255, 255, 255, 255, 255, 255, 255,
                                               255, 255, 255, 255, 255, 255, 255, 255};
static const uint8_t NAME(lowest_bit)[BLOCK] = {1};

/* ---- AES and the hash H_K(x) = AES_K(sigma(x)) ^ sigma(x) ---- */

TARGET static void NAME(schedule)(const uint8_t *key, uint8_t out[(ROUNDS + 1) * BLOCK]) {
    uint32_t w[4 * (ROUNDS + 1)];
    uint32_t constant = 1;
    memcpy(w, key, BLOCK);
    for (int i = 4; i < 4 * (ROUNDS + 1); i++) {
        uint32_t t = w[i - 1];
        if (i % 4 == 0) {
            t = NAME(sub_word)((t >> 8) | (t << 24)) ^ constant;
            constant = (constant << 1) ^ (constant & 0x80 ? 0x11B : 0);
        }
        w[i] = w[i - 4] ^ t;
    }
    memcpy(out, w, sizeof w);
}

TARGET static NAME(key) NAME(load_key)(const uint8_t *schedule) {
    NAME(key) key;
    for (int i = 0; i <= ROUNDS; i++) key.k[i] = NAME(v_bcast)(schedule + BLOCK * i);
    return key;
}

TARGET static NAME(key) NAME(make_key)(const uint8_t *bytes) {
    uint8_t schedule[(ROUNDS + 1) * BLOCK];
    NAME(schedule)(bytes, schedule);
    return NAME(load_key)(schedule);
}

/* sigma of the seed part of a node. */
LANE_FN V4 NAME(sigma_seed)(V4 node) {
    return NAME(v_sigma)(NAME(v_and)(node, NAME(v_bcast)(NAME(seed_bits))), NAME(v_bcast)(NAME(high_half)));
}

/* The middle of n AES computations that are already whitened. */
#define AES_MIDDLE(x, n, key)                                                                      \
    for (int round = 1; round < ROUNDS; round++)                                                   \
        for (int j = 0; j < (n); j++) (x)[j] = NAME(v_aes)((x)[j], (key)->k[round])

LANE_FN void NAME(hash_some)(const NAME(key) *key, const uint8_t *in, uint8_t *out, const int n) {
    V4 s[IN_FLIGHT], x[IN_FLIGHT];
    for (int j = 0; j < n; j++) {
        s[j] = NAME(v_sigma)(NAME(v_load)(in + VECTOR * j), NAME(v_bcast)(NAME(high_half)));
        x[j] = NAME(v_xor)(s[j], key->k[0]);
    }
    AES_MIDDLE(x, n, key);
    for (int j = 0; j < n; j++)
        NAME(v_store)(out + VECTOR * j, NAME(v_aeslast)(x[j], NAME(v_xor)(s[j], key->k[ROUNDS])));
}

TARGET static void NAME(hash_blocks)(const uint8_t *bytes, const uint8_t *in, uint8_t *out, size_t blocks) {
    const NAME(key) key = NAME(make_key)(bytes);
    size_t at = 0;
    for (; at + IN_FLIGHT * GROUP <= blocks; at += IN_FLIGHT * GROUP)
        NAME(hash_some)(&key, in + at * BLOCK, out + at * BLOCK, IN_FLIGHT);
    for (; at < blocks; at += GROUP) {
        uint8_t four[VECTOR] = {0};
        const size_t some = smaller(GROUP, blocks - at) * BLOCK;
        memcpy(four, in + at * BLOCK, some);
        NAME(hash_some)(&key, four, four, 1);
        memcpy(out + at * BLOCK, four, some);
    }
}

/* ---- additive shares from a seed: values += or -= AES_K(0), AES_K(1), ... ---- */

LANE_FN V4 NAME(ring_add)(V4 a, V4 b, const size_t element) {
    return element == 8 ? NAME(v_add64)(a, b) : NAME(v_add32)(a, b);
}

LANE_FN V4 NAME(ring_sub)(V4 a, V4 b, const size_t element) {
    return element == 8 ? NAME(v_sub64)(a, b) : NAME(v_sub32)(a, b);
}

LANE_FN void NAME(stream_vectors)(const NAME(key) *key, uint64_t counter, V4 *x) {
    uint64_t counters[IN_FLIGHT * GROUP * 2];
    for (int i = 0; i < IN_FLIGHT * GROUP; i++) counters[2 * i] = counter + (uint64_t)i, counters[2 * i + 1] = 0;
    for (int j = 0; j < IN_FLIGHT; j++)
        x[j] = NAME(v_xor)(NAME(v_load)((const uint8_t *)counters + VECTOR * j), key->k[0]);
    AES_MIDDLE(x, IN_FLIGHT, key);
    for (int j = 0; j < IN_FLIGHT; j++) x[j] = NAME(v_aeslast)(x[j], key->k[ROUNDS]);
}

LANE_FN void NAME(stream_step)(const NAME(key) *key, uint64_t counter, uint8_t *values, const size_t element,
                               const int negative) {
    V4 x[IN_FLIGHT];
    NAME(stream_vectors)(key, counter, x);
    for (int j = 0; j < IN_FLIGHT; j++) {
        const V4 value = NAME(v_load)(values + VECTOR * j);
        NAME(v_store)(values + VECTOR * j, negative ? NAME(ring_sub)(value, x[j], element)
                                                    : NAME(ring_add)(value, x[j], element));
    }
}

TARGET static void NAME(add_stream)(const uint8_t *bytes, uint8_t *values, size_t size, size_t element, int negative) {
    const NAME(key) key = NAME(make_key)(bytes);
    const size_t step = IN_FLIGHT * VECTOR;
    size_t at = 0;
    for (; at + step <= size; at += step) NAME(stream_step)(&key, at / BLOCK, values + at, element, negative);
    if (at < size) {
        uint8_t rest[IN_FLIGHT * VECTOR] = {0};
        memcpy(rest, values + at, size - at);
        NAME(stream_step)(&key, at / BLOCK, rest, element, negative);
        memcpy(values + at, rest, size - at);
    }
}

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

/* The nodes of `count` leaves from `first` on; first is a multiple of 2^chunk_bits. Uses both buffers, returns one. */
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

/* Room for the leaves of one chunk, rounded up so that IN_FLIGHT vectors can always be read and written. */
#define NODE_BYTES ((CHUNK_LEAVES + IN_FLIGHT) * sizeof(V4))

/* The states come out group by group: (ceil(slots / 4), leaves, 4, 16). */
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

/* ---- reading: XOR of the rows whose control bit is set ---- */

/* XOR the chosen rows into `answer`; the next rows are fetched while this one is used. */
TARGET static void NAME(xor_rows)(const uint32_t *rows, size_t columns, const int32_t *chosen, size_t count,
                                  uint32_t *answer) {
    enum { WORDS = VECTOR / 4, WIDE = 4, AHEAD = 6 };
    size_t column = 0;
    for (; column + WORDS * WIDE <= columns; column += WORDS * WIDE) {
        V4 sum[WIDE];
        for (int v = 0; v < WIDE; v++) sum[v] = NAME(v_load)((const uint8_t *)(answer + column + WORDS * v));
        for (size_t i = 0; i < count; i++) {
            const uint32_t *row = rows + (size_t)chosen[i] * columns + column;
            const uint32_t *later = rows + (size_t)chosen[smaller(i + AHEAD, count - 1)] * columns + column;
            for (int v = 0; v < WIDE; v++) __builtin_prefetch(later + WORDS * v);
            for (int v = 0; v < WIDE; v++)
                sum[v] = NAME(v_xor)(sum[v], NAME(v_load)((const uint8_t *)(row + WORDS * v)));
        }
        for (int v = 0; v < WIDE; v++) NAME(v_store)((uint8_t *)(answer + column + WORDS * v), sum[v]);
    }
    for (; column + WORDS <= columns; column += WORDS) {
        V4 sum = NAME(v_load)((const uint8_t *)(answer + column));
        for (size_t i = 0; i < count; i++)
            sum = NAME(v_xor)(sum, NAME(v_load)((const uint8_t *)(rows + (size_t)chosen[i] * columns + column)));
        NAME(v_store)((uint8_t *)(answer + column), sum);
    }
    for (; column < columns; column++) {
        uint32_t sum = answer[column];
        for (size_t i = 0; i < count; i++) sum ^= rows[(size_t)chosen[i] * columns + column];
        answer[column] = sum;
    }
}

/* The items of one lane's leaves whose control bit is set, without a branch on the bit. */
TARGET static size_t NAME(chosen_items)(const V4 *nodes, size_t lane, const int32_t *order, size_t count,
                                        const table_t *table, int32_t *chosen) {
    const uint8_t *control = (const uint8_t *)nodes + lane * BLOCK;
    size_t n = 0;
    for (size_t leaf = 0; leaf < count; leaf++) {
        chosen[n] = order[leaf];
        n += (control[leaf * VECTOR] & 1) & ((uint32_t)order[leaf] < table->items);
    }
    return n;
}

TARGET static int NAME(answer)(const paths_t *p, const table_t *table, const part_t *part, const uint32_t *rows,
                               size_t columns, uint32_t *answers) {
    uint8_t *schedules = NAME(schedules_of)(p), *memory = take_lines(2 * NODE_BYTES + sizeof(NAME(tree)));
    const int bits = NAME(chunk_bits_for)(p->depth, VECTOR), failed = !schedules || !memory;
    const size_t chunk = (size_t)1 << bits;
    int32_t chosen[CHUNK_LEAVES + 1];
    for (size_t slot = part->slot_from; !failed && slot < part->slot_to; slot += GROUP)
        for (size_t first = part->leaf_from; first < part->leaf_to; first += chunk)
            for (size_t session = 0; session < p->sessions; session++) {
                const size_t count = smaller(chunk, part->leaf_to - first);
                NAME(tree) *tree = (NAME(tree) *)(memory + 2 * NODE_BYTES);
                NAME(load_tree)(tree, p, SCHEDULES(schedules, session), session, slot);
                const V4 *nodes = NAME(expand_chunk)(tree, p->depth, bits, first, count, (V4 *)memory,
                                                     (V4 *)(memory + NODE_BYTES));
                for (size_t lane = 0; lane < smaller(GROUP, part->slot_to - slot); lane++) {
                    const int32_t *order = table->order + (slot + lane) / table->slots_per_bin * table->leaves + first;
                    const size_t n = NAME(chosen_items)(nodes, lane, order, count, table, chosen);
                    if (n) NAME(xor_rows)(rows, columns, chosen, n, answers + (session * p->slots + slot + lane) * columns);
                }
            }
    free(schedules), free(memory);
    return failed;
}

/* ---- Convert: blocks H_K(seed ^ 0), H_K(seed ^ 1), ... ----
 *
 * sigma is linear, so sigma(seed ^ c) = sigma(seed) ^ sigma(c): the counter is folded into the first and the last
 * round key. Of a row's blocks, full * 4 are made four counters at a time from one seed; the rest (tail) are
 * made one counter at a time from four seeds, so that no lane idles.
 */
typedef struct {
    const NAME(key) *key;
    V4 *first, *last; /* round keys 0 and 10 with the counters folded in: `full` of them, then `tail` */
} NAME(converter);

/* sigma(counter) for the four counters from `counter` on, or for one counter in all four lanes. */
LANE_FN V4 NAME(sigma_counters)(uint64_t counter, uint64_t step) {
    uint64_t words[GROUP * 2];
    for (uint64_t i = 0; i < GROUP; i++) words[2 * i] = 0, words[2 * i + 1] = counter + step * i;
    return NAME(v_load)((const uint8_t *)words);
}

TARGET static void NAME(fold_counters)(const NAME(converter) *c, row_t row) {
    for (size_t v = 0; v < row.full + row.tail; v++) {
        const V4 counters = v < row.full ? NAME(sigma_counters)(GROUP * v, 1)
                                         : NAME(sigma_counters)(GROUP * row.full + (v - row.full), 0);
        c->first[v] = NAME(v_xor)(c->key->k[0], counters);
        c->last[v] = NAME(v_xor)(c->key->k[ROUNDS], counters);
    }
}

/* Vector v of the blocks of n seeds whose sigma is in s. */
LANE_FN void NAME(convert_some)(const NAME(converter) *c, size_t v, const V4 *s, V4 *x, const int n) {
    const V4 first = c->first[v], last = c->last[v];
    for (int j = 0; j < n; j++) x[j] = NAME(v_xor)(s[j], first);
    AES_MIDDLE(x, n, c->key);
    for (int j = 0; j < n; j++) x[j] = NAME(v_aeslast)(x[j], NAME(v_xor)(s[j], last));
}

/* ---- writing: sums[item] += (-1)^party * (Convert(s) + t * CW), summed over sessions chunk by chunk ---- */

/* Sums of one chunk: full vectors by (leaf, lane, v), tail vectors by (leaf, v); and the correction words alike. */
typedef struct {
    uint8_t *full, *tail;
    uint8_t *full_words; /* (2, GROUP, full): zeros, then the words, so that t picks one without a branch */
    uint8_t *tail_words; /* (tail) */
} NAME(sums);

/* The full vectors of all leaves: IN_FLIGHT (leaf, lane) pairs at a time. */
LANE_FN void NAME(add_full)(const NAME(converter) *c, row_t row, const V4 *nodes, size_t count, const NAME(sums) *sums,
                            const size_t element) {
    const uint8_t *states = (const uint8_t *)nodes;
    for (size_t pair = 0; row.full && pair < count * GROUP; pair += IN_FLIGHT) {
        V4 s[IN_FLIGHT];
        const uint8_t *words[IN_FLIGHT];
        for (size_t j = 0; j < IN_FLIGHT; j++) {
            const uint8_t *state = states + (pair + j) * BLOCK;
            s[j] = NAME(sigma_seed)(NAME(v_bcast)(state));
            words[j] = sums->full_words + ((state[0] & 1) * GROUP + (pair + j) % GROUP) * row.full * VECTOR;
        }
        for (size_t v = 0; v < row.full; v++) {
            V4 x[IN_FLIGHT];
            NAME(convert_some)(c, v, s, x, IN_FLIGHT);
            for (size_t j = 0; j < IN_FLIGHT; j++) {
                uint8_t *at = sums->full + ((pair + j) * row.full + v) * VECTOR;
                const V4 sum = NAME(ring_add)(NAME(v_load)(at), NAME(v_load)(words[j] + v * VECTOR), element);
                NAME(v_store)(at, NAME(ring_add)(sum, x[j], element));
            }
        }
    }
}

/* The tail vectors of all leaves: IN_FLIGHT leaves at a time, the lanes of a vector are the four slots. */
LANE_FN void NAME(add_tail)(const NAME(converter) *c, row_t row, const V4 *nodes, size_t count, const NAME(sums) *sums,
                            const size_t element) {
    for (size_t leaf = 0; leaf < count; leaf += IN_FLIGHT) {
        V4 s[IN_FLIGHT], t[IN_FLIGHT];
        for (size_t j = 0; j < IN_FLIGHT; j++) {
            s[j] = NAME(sigma_seed)(nodes[leaf + j]);
            t[j] = NAME(v_control)(nodes[leaf + j]);
        }
        for (size_t v = 0; v < row.tail; v++) {
            V4 x[IN_FLIGHT];
            NAME(convert_some)(c, row.full + v, s, x, IN_FLIGHT);
            for (size_t j = 0; j < IN_FLIGHT; j++) {
                uint8_t *at = sums->tail + ((leaf + j) * row.tail + v) * VECTOR;
                const V4 word = NAME(v_and)(t[j], NAME(v_load)(sums->tail_words + v * VECTOR));
                const V4 sum = NAME(ring_add)(NAME(v_load)(at), word, element);
                NAME(v_store)(at, NAME(ring_add)(sum, x[j], element));
            }
        }
    }
}

TARGET static void NAME(add_leaves)(const NAME(converter) *c, row_t row, const V4 *nodes, size_t count,
                                    const NAME(sums) *sums) {
    if (row.element == 8) {
        NAME(add_full)(c, row, nodes, count, sums, 8);
        NAME(add_tail)(c, row, nodes, count, sums, 8);
    } else {
        NAME(add_full)(c, row, nodes, count, sums, 4);
        NAME(add_tail)(c, row, nodes, count, sums, 4);
    }
}

/* Lay the correction words of one session's four slots out as the sums are. */
static void NAME(load_words)(const NAME(sums) *sums, row_t row, const uint8_t *words, size_t available) {
    const size_t full = row.full * VECTOR;
    for (size_t lane = 0; lane < smaller(GROUP, available); lane++) {
        const uint8_t *from = words + lane * row.bytes;
        memcpy(sums->full_words + (GROUP + lane) * full, from, smaller(full, row.bytes));
        for (size_t v = 0; v < row.tail; v++) {
            const size_t at = full + v * BLOCK;
            memcpy(sums->tail_words + v * VECTOR + lane * BLOCK, from + at, smaller(BLOCK, row.bytes - at));
        }
    }
}

LANE_FN void NAME(add_elements)(uint8_t *sums, const uint8_t *values, size_t bytes, const size_t element,
                                const int negative) {
    for (size_t i = 0; i < bytes / element; i++) {
        if (element == 8) {
            const uint64_t value = ((const uint64_t *)values)[i];
            ((uint64_t *)sums)[i] += negative ? 0 - value : value;
        } else {
            const uint32_t value = ((const uint32_t *)values)[i];
            ((uint32_t *)sums)[i] += negative ? 0 - value : value;
        }
    }
}

/* Add one lane's sums of a finished chunk to the items they belong to. */
LANE_FN void NAME(deliver_lane)(const NAME(sums) *sums, row_t row, const table_t *table, size_t lane,
                                const int32_t *order, size_t count, uint8_t *out, const size_t element,
                                const int negative) {
    enum { AHEAD = 4 };
    const size_t full = row.full * VECTOR;
    for (size_t leaf = 0; leaf < count; leaf++) {
        const int32_t later = order[smaller(leaf + AHEAD, count - 1)];
        if ((uint32_t)later < table->items)
            for (size_t at = 0; at < row.bytes; at += VECTOR) __builtin_prefetch(out + (size_t)later * row.bytes + at, 1);
        if ((uint32_t)order[leaf] >= table->items) continue; /* a short bin */
        uint8_t *item = out + (size_t)order[leaf] * row.bytes;
        NAME(add_elements)(item, sums->full + (leaf * GROUP + lane) * full, smaller(full, row.bytes), element, negative);
        for (size_t v = 0; v < row.tail; v++) {
            const size_t at = full + v * BLOCK;
            NAME(add_elements)(item + at, sums->tail + (leaf * row.tail + v) * VECTOR + lane * BLOCK,
                               smaller(BLOCK, row.bytes - at), element, negative);
        }
    }
}

TARGET static void NAME(deliver)(const NAME(sums) *sums, row_t row, const table_t *table, size_t slot, size_t lanes,
                                 size_t first, size_t count, int negative, uint8_t *out) {
    for (size_t lane = 0; lane < lanes; lane++) {
        const int32_t *order = table->order + (slot + lane) / table->slots_per_bin * table->leaves + first;
        if (row.element == 8)
            NAME(deliver_lane)(sums, row, table, lane, order, count, out, 8, negative);
        else
            NAME(deliver_lane)(sums, row, table, lane, order, count, out, 4, negative);
    }
}

/* Where the run of slots ends whose groups of four can share sums: whole groups of one bin, or a single group. */
static size_t NAME(end_of_run)(const table_t *table, size_t slot, size_t slot_to) {
    const size_t bin_end = (slot / table->slots_per_bin + 1) * table->slots_per_bin;
    const size_t whole = smaller(bin_end, slot_to) - slot;
    return whole >= GROUP ? slot + whole / GROUP * GROUP : smaller(slot + GROUP, slot_to);
}

TARGET static int NAME(accumulate)(const paths_t *p, const table_t *table, const part_t *part, const uint8_t *words,
                                   row_t row, uint8_t *out) {
    const size_t vectors = row.full + row.tail, a_leaf = row.full * GROUP * VECTOR + row.tail * VECTOR;
    const int bits = NAME(chunk_bits_for)(p->depth, a_leaf);
    const size_t chunk = (size_t)1 << bits, room = round_up(chunk, IN_FLIGHT);
    const size_t folded = vectors * sizeof(V4), padded = (1 + 2 * GROUP) * row.full * VECTOR + row.tail * VECTOR;
    uint8_t *schedules = NAME(schedules_of)(p);
    uint8_t *memory = take_lines(2 * NODE_BYTES + sizeof(NAME(tree)) + 2 * folded + room * a_leaf + padded);
    if (!schedules || !memory) {
        free(schedules), free(memory);
        return 1;
    }
    NAME(tree) *tree = (NAME(tree) *)(memory + 2 * NODE_BYTES);
    uint8_t *after = (uint8_t *)tree + sizeof(NAME(tree));
    NAME(key) key;
    const NAME(converter) c = {&key, (V4 *)after, (V4 *)(after + folded)};
    NAME(sums) sums = {.full = after + 2 * folded};
    sums.tail = sums.full + room * row.full * GROUP * VECTOR;
    sums.full_words = sums.tail + room * row.tail * VECTOR;
    sums.tail_words = sums.full_words + 2 * GROUP * row.full * VECTOR;
    for (size_t slot = part->slot_from, next; slot < part->slot_to; slot = next) {
        next = NAME(end_of_run)(table, slot, part->slot_to);
        const size_t lanes = smaller(GROUP, next - slot);
        for (size_t first = part->leaf_from; first < part->leaf_to; first += chunk) {
            const size_t count = smaller(chunk, part->leaf_to - first);
            memset(sums.full, 0, room * a_leaf);
            for (size_t session = 0; session < p->sessions; session++) {
                const uint8_t *schedule = SCHEDULES(schedules, session);
                key = NAME(load_key)(schedule + 2 * (ROUNDS + 1) * BLOCK);
                NAME(fold_counters)(&c, row);
                for (size_t group = slot; group < next; group += GROUP) {
                    NAME(load_tree)(tree, p, schedule, session, group);
                    NAME(load_words)(&sums, row, words + (session * p->slots + group) * row.bytes, lanes);
                    const V4 *nodes = NAME(expand_chunk)(tree, p->depth, bits, first, count, (V4 *)memory,
                                                         (V4 *)(memory + NODE_BYTES));
                    NAME(add_leaves)(&c, row, nodes, count, &sums);
                }
            }
            NAME(deliver)(&sums, row, table, slot, lanes, first, count, p->party, out);
        }
    }
    free(schedules), free(memory);
    return 0;
}

/* ---- FSS.ConvertGen ---- */

/* (-1)^t1 * (payload - c0 + c1), without a branch on t1: `sign` is all ones where it is set. */
LANE_FN V4 NAME(correct)(V4 payload, V4 c0, V4 c1, V4 sign, const size_t element) {
    const V4 word = NAME(ring_add)(NAME(ring_sub)(payload, c0, element), c1, element);
    return NAME(ring_sub)(NAME(v_xor)(word, sign), sign, element);
}

LANE_FN V4 NAME(load_some)(const uint8_t *from, size_t bytes) {
    uint8_t four[VECTOR] = {0};
    if (bytes >= VECTOR) return NAME(v_load)(from);
    memcpy(four, from, bytes);
    return NAME(v_load)(four);
}

LANE_FN void NAME(store_some)(uint8_t *to, size_t bytes, V4 x) {
    uint8_t four[VECTOR];
    if (bytes >= VECTOR) {
        NAME(v_store)(to, x);
        return;
    }
    NAME(v_store)(four, x);
    memcpy(to, four, bytes);
}

#define PAIRS (IN_FLIGHT / 2)

/* The full vectors of all slots: both parties' seeds of PAIRS slots at a time. */
LANE_FN void NAME(full_words)(const NAME(converter) *c, row_t row, const uint8_t *leaf0, const uint8_t *leaf1,
                              const uint8_t *payload, size_t slots, uint8_t *words, const size_t element) {
    for (size_t at = 0; row.full && at < slots; at += PAIRS) {
        V4 s[IN_FLIGHT], sign[PAIRS];
        for (size_t j = 0; j < PAIRS; j++) {
            const size_t slot = smaller(at + j, slots - 1);
            const V4 second = NAME(v_bcast)(leaf1 + slot * BLOCK);
            s[2 * j] = NAME(sigma_seed)(NAME(v_bcast)(leaf0 + slot * BLOCK));
            s[2 * j + 1] = NAME(sigma_seed)(second);
            sign[j] = NAME(v_control)(second);
        }
        for (size_t v = 0; v < row.full; v++) {
            const size_t offset = v * VECTOR, bytes = row.bytes - offset;
            V4 x[IN_FLIGHT];
            NAME(convert_some)(c, v, s, x, IN_FLIGHT);
            for (size_t j = 0; j < PAIRS; j++) {
                const size_t place = smaller(at + j, slots - 1) * row.bytes + offset;
                const V4 value = NAME(load_some)(payload + place, bytes);
                NAME(store_some)(words + place, bytes, NAME(correct)(value, x[2 * j], x[2 * j + 1], sign[j], element));
            }
        }
    }
}

/* The tail vectors: one counter, four slots at a time. */
LANE_FN void NAME(tail_words)(const NAME(converter) *c, row_t row, const uint8_t *leaf0, const uint8_t *leaf1,
                              const uint8_t *payload, size_t slots, uint8_t *words, const size_t element) {
    for (size_t at = 0; row.tail && at < slots; at += GROUP) {
        const V4 second = NAME(load_group)(leaf1 + at * BLOCK, slots - at), sign = NAME(v_control)(second);
        const V4 s[2] = {NAME(sigma_seed)(NAME(load_group)(leaf0 + at * BLOCK, slots - at)), NAME(sigma_seed)(second)};
        for (size_t v = 0; v < row.tail; v++) {
            const size_t offset = row.full * VECTOR + v * BLOCK, bytes = smaller(BLOCK, row.bytes - offset);
            uint8_t four[VECTOR] = {0};
            V4 x[2];
            NAME(convert_some)(c, row.full + v, s, x, 2);
            for (size_t j = 0; j < smaller(GROUP, slots - at); j++)
                memcpy(four + j * BLOCK, payload + (at + j) * row.bytes + offset, bytes);
            NAME(v_store)(four, NAME(correct)(NAME(v_load)(four), x[0], x[1], sign, element));
            for (size_t j = 0; j < smaller(GROUP, slots - at); j++)
                memcpy(words + (at + j) * row.bytes + offset, four + j * BLOCK, bytes);
        }
    }
}

TARGET static int NAME(convert_gen)(const uint8_t *bytes, const uint8_t *leaf0, const uint8_t *leaf1,
                                    const uint8_t *payload, size_t slots, row_t row, uint8_t *words) {
    const size_t folded = (row.full + row.tail) * sizeof(V4);
    uint8_t *memory = take_lines(2 * folded);
    if (!memory) return 1;
    const NAME(key) key = NAME(make_key)(bytes);
    const NAME(converter) c = {&key, (V4 *)memory, (V4 *)(memory + folded)};
    NAME(fold_counters)(&c, row);
    if (row.element == 8) {
        NAME(full_words)(&c, row, leaf0, leaf1, payload, slots, words, 8);
        NAME(tail_words)(&c, row, leaf0, leaf1, payload, slots, words, 8);
    } else {
        NAME(full_words)(&c, row, leaf0, leaf1, payload, slots, words, 4);
        NAME(tail_words)(&c, row, leaf0, leaf1, payload, slots, words, 4);
    }
    free(memory);
    return 0;
}

/* ---- row tags: a chain h = H_K(h ^ block) over the row, from the item's number ---- */

TARGET static void NAME(row_tags)(const uint8_t *bytes, const uint8_t *rows, const int64_t *items, size_t count,
                                  size_t width, uint32_t *tags) {
    const NAME(key) key = NAME(make_key)(bytes);
    const V4 high = NAME(v_bcast)(NAME(high_half));
    const size_t size = width * 4;
    for (size_t at = 0; at < count; at += IN_FLIGHT * GROUP) {
        V4 h[IN_FLIGHT], s[IN_FLIGHT];
        uint64_t start[IN_FLIGHT * GROUP * 2] = {0};
        for (size_t i = 0; i < IN_FLIGHT * GROUP; i++) start[2 * i] = (uint64_t)items[smaller(at + i, count - 1)];
        for (size_t j = 0; j < IN_FLIGHT; j++) h[j] = NAME(v_load)((const uint8_t *)start + VECTOR * j);
        for (size_t offset = 0; offset < size; offset += BLOCK) {
            uint8_t blocks[IN_FLIGHT * VECTOR] = {0};
            for (size_t i = 0; i < IN_FLIGHT * GROUP; i++)
                memcpy(blocks + BLOCK * i, rows + smaller(at + i, count - 1) * size + offset, smaller(BLOCK, size - offset));
            for (size_t j = 0; j < IN_FLIGHT; j++) {
                s[j] = NAME(v_sigma)(NAME(v_xor)(h[j], NAME(v_load)(blocks + VECTOR * j)), high);
                h[j] = NAME(v_xor)(s[j], key.k[0]);
            }
            AES_MIDDLE(h, IN_FLIGHT, &key);
            for (size_t j = 0; j < IN_FLIGHT; j++)
                h[j] = NAME(v_aeslast)(h[j], NAME(v_xor)(s[j], key.k[ROUNDS]));
        }
        for (size_t j = 0; j < IN_FLIGHT; j++) NAME(v_store)((uint8_t *)start + VECTOR * j, h[j]);
        for (size_t i = 0; i < smaller(IN_FLIGHT * GROUP, count - at); i++) tags[at + i] = (uint32_t)start[2 * i];
    }
}

static const kernel_t NAME(kernel) = {
    .name = KERNEL_NAME,
    .available = KERNEL_AVAILABLE,
    .hash_blocks = NAME(hash_blocks),
    .add_stream = NAME(add_stream),
    .generate = NAME(generate),
    .expand = NAME(expand),
    .convert_gen = NAME(convert_gen),
    .answer = NAME(answer),
    .accumulate = NAME(accumulate),
    .row_tags = NAME(row_tags),
};

#undef AES_MIDDLE
#undef GEN_GROUPS
#undef PARENTS
#undef PAIRS
#undef SCHEDULES
#undef NODE_BYTES
