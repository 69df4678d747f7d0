/* Verifiable keys: hashes of leaves, and fingerprints over all of them. Included by dpf_body.h, once per instruction set.
 *
 * The hash of node n at leaf x is three blocks H_K(n) with keys K = AES(leaf key, 3x + j) that no other leaf has.
 * The node comes with its control bit. A whole leaf's key schedules serve every slot, so they are made once a chunk.
 */

#define SCHEDULE ((ROUNDS + 1) * BLOCK)

/* The key schedules of the leaves from `first` on: (count, 3, 11, 16). */
TARGET static void NAME(leaf_schedules)(const NAME(key) *leaf_key, size_t first, size_t count, uint8_t *schedules) {
    uint8_t keys[IN_FLIGHT * VECTOR];
    for (size_t at = 0; at < count * HASHES; at += IN_FLIGHT * GROUP) {
        V4 x[IN_FLIGHT];
        NAME(stream_vectors)(leaf_key, HASHES * first + at, x);
        for (int j = 0; j < IN_FLIGHT; j++) NAME(v_store)(keys + VECTOR * j, x[j]);
        for (size_t i = 0; i < smaller(IN_FLIGHT * GROUP, count * HASHES - at); i++)
            NAME(schedule)(keys + BLOCK * i, schedules + (at + i) * SCHEDULE);
    }
}

/* ---- a device: the hash of one node a slot ---- */

TARGET static void NAME(leaf_hashes)(const uint8_t *bytes, const uint8_t *nodes, const int64_t *leaves, size_t count,
                                     uint8_t *out) {
    const NAME(key) leaf_key = NAME(make_key)(bytes);
    for (size_t i = 0; i < count; i++) {
        uint8_t schedules[HASHES * SCHEDULE], four[VECTOR];
        NAME(leaf_schedules)(&leaf_key, (size_t)leaves[i], 1, schedules);
        const V4 s = NAME(v_sigma)(NAME(v_bcast)(nodes + i * BLOCK), NAME(v_bcast)(NAME(high_half)));
        V4 x[HASHES];
        for (int j = 0; j < HASHES; j++) x[j] = NAME(v_xor)(s, NAME(v_bcast)(schedules + j * SCHEDULE));
        for (int round = 1; round < ROUNDS; round++)
            for (int j = 0; j < HASHES; j++)
                x[j] = NAME(v_aes)(x[j], NAME(v_bcast)(schedules + j * SCHEDULE + round * BLOCK));
        for (int j = 0; j < HASHES; j++) {
            const V4 last = NAME(v_bcast)(schedules + j * SCHEDULE + ROUNDS * BLOCK);
            NAME(v_store)(four, NAME(v_aeslast)(x[j], NAME(v_xor)(s, last)));
            memcpy(out + i * HASH + j * BLOCK, four, BLOCK);
        }
    }
}

/* ---- a server: XOR over all leaves of AES(k_j, hash_j ^ t * correction_j ^ AES(k_3, place)) ---- */

/* Four slots of one session. */
typedef struct {
    V4 corrections[HASHES], places, present; /* places: the slots' numbers; present: all ones where there is a slot */
} NAME(checked_slots);

TARGET static NAME(checked_slots) NAME(load_checked)(const uint8_t *corrections, size_t slot, size_t available) {
    NAME(checked_slots) four;
    uint8_t blocks[HASHES][VECTOR] = {{0}}, present[VECTOR] = {0};
    uint64_t places[GROUP * 2];
    for (size_t lane = 0; lane < GROUP; lane++) places[2 * lane] = 0, places[2 * lane + 1] = slot + lane;
    for (size_t lane = 0; lane < smaller(GROUP, available); lane++) {
        memset(present + lane * BLOCK, 255, BLOCK);
        for (int j = 0; j < HASHES; j++)
            memcpy(blocks[j] + lane * BLOCK, corrections + lane * HASH + j * BLOCK, BLOCK);
    }
    for (int j = 0; j < HASHES; j++) four.corrections[j] = NAME(v_load)(blocks[j]);
    four.places = NAME(v_load)((const uint8_t *)places), four.present = NAME(v_load)(present);
    return four;
}

/* One leaf of four slots. The three hashes and the mask of the place are four computations side by side. */
LANE_FN V4 NAME(check_leaf)(const NAME(checked_slots) *slots, const NAME(key) *keys, const uint8_t *schedules, V4 node,
                            size_t leaf) {
    const uint64_t number[2] = {leaf, 0};
    const V4 s = NAME(v_sigma)(node, NAME(v_bcast)(NAME(high_half))), t = NAME(v_control)(node);
    const V4 place = NAME(v_xor)(slots->places, NAME(v_bcast)((const uint8_t *)number));
    V4 x[HASHES + 1];
    for (int j = 0; j < HASHES; j++) x[j] = NAME(v_xor)(s, NAME(v_bcast)(schedules + j * SCHEDULE));
    x[HASHES] = NAME(v_xor)(place, keys[HASHES].k[0]);
    for (int round = 1; round < ROUNDS; round++) {
        for (int j = 0; j < HASHES; j++)
            x[j] = NAME(v_aes)(x[j], NAME(v_bcast)(schedules + j * SCHEDULE + round * BLOCK));
        x[HASHES] = NAME(v_aes)(x[HASHES], keys[HASHES].k[round]);
    }
    const V4 mask = NAME(v_aeslast)(x[HASHES], keys[HASHES].k[ROUNDS]);
    for (int j = 0; j < HASHES; j++) {
        const V4 last = NAME(v_xor)(s, NAME(v_bcast)(schedules + j * SCHEDULE + ROUNDS * BLOCK));
        const V4 corrected = NAME(v_xor)(NAME(v_aeslast)(x[j], last), NAME(v_and)(t, slots->corrections[j]));
        x[j] = NAME(v_xor)(NAME(v_xor)(corrected, mask), keys[j].k[0]);
    }
    for (int round = 1; round < ROUNDS; round++)
        for (int j = 0; j < HASHES; j++) x[j] = NAME(v_aes)(x[j], keys[j].k[round]);
    V4 sum = NAME(v_aeslast)(x[0], keys[0].k[ROUNDS]);
    for (int j = 1; j < HASHES; j++) sum = NAME(v_xor)(sum, NAME(v_aeslast)(x[j], keys[j].k[ROUNDS]));
    return NAME(v_and)(sum, slots->present);
}

/* XORs the fingerprints of the part's slots into `out` (sessions, 16). All leaves of the part's range are looked at. */
TARGET static int NAME(fingerprint)(const paths_t *p, const checks_t *checks, const part_t *part, uint8_t *out) {
    uint8_t *schedules = NAME(schedules_of)(p);
    uint8_t *memory = take_lines(2 * NODE_BYTES + sizeof(NAME(tree)) + CHUNK_LEAVES * HASHES * SCHEDULE);
    const int bits = NAME(chunk_bits_for)(p->depth, VECTOR), failed = !schedules || !memory;
    const size_t chunk = (size_t)1 << bits;
    NAME(key) keys[HASHES + 1];
    for (int j = 0; j <= HASHES; j++) keys[j] = NAME(make_key)(checks->keys + j * BLOCK);
    for (size_t session = 0; !failed && session < p->sessions; session++) {
        const NAME(key) leaf_key = NAME(make_key)(checks->leaf_keys + session * BLOCK);
        NAME(tree) *tree = (NAME(tree) *)(memory + 2 * NODE_BYTES);
        uint8_t *leaf_schedules = (uint8_t *)tree + sizeof(NAME(tree)), lanes[VECTOR];
        V4 sum = NAME(v_xor)(leaf_key.k[0], leaf_key.k[0]);
        for (size_t first = part->leaf_from; first < part->leaf_to; first += chunk) {
            const size_t count = smaller(chunk, part->leaf_to - first);
            NAME(leaf_schedules)(&leaf_key, first, count, leaf_schedules);
            for (size_t slot = part->slot_from; slot < part->slot_to; slot += GROUP) {
                const NAME(checked_slots) four = NAME(load_checked)(checks->corrections + (session * p->slots + slot) * HASH,
                                                                    slot, part->slot_to - slot);
                NAME(load_tree)(tree, p, SCHEDULES(schedules, session), session, slot);
                const V4 *nodes = NAME(expand_chunk)(tree, p->depth, bits, first, count, (V4 *)memory,
                                                     (V4 *)(memory + NODE_BYTES));
                for (size_t leaf = 0; leaf < count; leaf++)
                    sum = NAME(v_xor)(sum, NAME(check_leaf)(&four, keys, leaf_schedules + leaf * HASHES * SCHEDULE,
                                                            nodes[leaf], first + leaf));
            }
        }
        NAME(v_store)(lanes, sum);
        for (size_t i = 0; i < VECTOR; i++) out[session * BLOCK + i % BLOCK] ^= lanes[i];
    }
    free(schedules), free(memory);
    return failed;
}
