/* Run every operation on fixed input and print a digest of its output, for each instruction set of this processor.
 *
 * It needs no Python, so it can also be cross-compiled: `make kernel-check` compares ARMv8 under an emulator with x86.
 */
#include <stdio.h>

#include "kernels.h"
#include "noise.h"
#include "placement.h"

static uint64_t state = 1;

static uint8_t next_byte(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint8_t)(state >> 56);
}

static void *fill(size_t bytes) {
    uint8_t *p = malloc(bytes ? bytes : 1);
    if (!p) abort();
    for (size_t i = 0; i < bytes; i++) p[i] = next_byte();
    return p;
}

static void print_digest(const char *what, const void *data, size_t bytes) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    printf("%s %016llx\n", what, (unsigned long long)hash);
}

static row_t row_of(size_t width, size_t element) {
    const size_t bytes = width * element, blocks = (bytes + BLOCK - 1) / BLOCK;
    return (row_t){width, element, bytes, blocks, blocks / GROUP, blocks % GROUP};
}

static void check_streams(const kernel_t *k) {
    uint8_t *key = fill(BLOCK), *in = fill(77 * BLOCK), *out = fill(77 * BLOCK), *values = fill(1000 * 8);
    k->hash_blocks(key, in, out, 77);
    print_digest("hash_blocks", out, 77 * BLOCK);
    k->add_stream(key, values, 999 * 4, 4, 1);
    k->add_stream(key, values, 1000 * 8, 8, 0);
    print_digest("add_stream", values, 1000 * 8);
    free(key), free(in), free(out), free(values);
}

static void check_device(const kernel_t *k, size_t slots, int depth, row_t row) {
    uint8_t *keys = fill(3 * BLOCK), *roots0 = fill(slots * BLOCK), *roots1 = fill(slots * BLOCK);
    const size_t levels = slots * (size_t)depth;
    uint8_t *left = fill(levels * BLOCK), *right = fill(levels), *leaf0 = fill(slots * BLOCK), *leaf1 = fill(slots * BLOCK);
    uint8_t *payload = fill(slots * row.bytes), *words = fill(slots * row.bytes);
    int64_t *alpha = fill(slots * sizeof *alpha);
    for (size_t i = 0; i < slots; i++) alpha[i] &= ((int64_t)1 << depth) - 1;
    k->generate(keys, roots0, roots1, alpha, slots, depth, left, right, leaf0, leaf1);
    print_digest("generate left", left, levels * BLOCK);
    print_digest("generate right", right, levels);
    print_digest("generate leaf0", leaf0, slots * BLOCK);
    print_digest("generate leaf1", leaf1, slots * BLOCK);
    if (k->convert_gen(keys, leaf0, leaf1, payload, slots, row, words)) abort();
    print_digest("convert_gen", words, slots * row.bytes);
    free(keys), free(roots0), free(roots1), free(left), free(right), free(leaf0), free(leaf1);
    free(payload), free(words), free(alpha);
}

static void check_server(const kernel_t *k, size_t bins, size_t slots_per_bin, size_t leaves, int depth, row_t row) {
    const size_t sessions = 2, slots = bins * slots_per_bin, items = bins * leaves, levels = (size_t)depth * slots;
    uint8_t *keys = fill(sessions * 3 * BLOCK), *roots = fill(sessions * slots * BLOCK);
    uint8_t *left = fill(sessions * levels * BLOCK), *right = fill(sessions * levels);
    uint8_t *words = fill(sessions * slots * row.bytes), *sums = fill(items * row.bytes);
    const size_t columns = row.width + 1;
    uint32_t *rows = fill(items * columns * 4), *answers = fill(sessions * slots * columns * 4), *tags = fill(items * 4);
    int32_t *order = fill(items * sizeof *order);
    int64_t *numbers = fill(items * sizeof *numbers);
    for (size_t i = 0; i < items; i++) order[i] = i % 7 == 3 ? -1 : (int32_t)i;
    const paths_t paths = {keys, roots, left, right, sessions, slots, depth, 1};
    const table_t table = {order, bins, leaves, slots_per_bin, items};
    const part_t part = {0, slots, 0, leaves};
    if (k->answer(&paths, &table, &part, rows, columns, answers)) abort();
    print_digest("answer", answers, sessions * slots * columns * 4);
    uint8_t *slot_sums = fill(sessions * slots * row.bytes);
    if (k->accumulate(&paths, &table, &part, words, row, sums, NULL)) abort();
    print_digest("accumulate", sums, items * row.bytes);
    if (k->accumulate(&paths, &table, &part, words, row, sums, slot_sums)) abort();
    print_digest("accumulate both", sums, items * row.bytes);
    print_digest("slot sums", slot_sums, sessions * slots * row.bytes);
    if (k->accumulate(&paths, &table, &part, words, row, NULL, slot_sums)) abort();
    print_digest("slot sums alone", slot_sums, sessions * slots * row.bytes);
    const size_t groups = (slots + GROUP - 1) / GROUP;
    const paths_t one = {keys, roots, left, right, 1, slots, depth, 0};
    uint8_t *states = fill(groups * GROUP * leaves * BLOCK);
    if (k->expand(&one, leaves, states)) abort();
    for (size_t lane = slots % GROUP; lane && lane < GROUP; lane++) /* lanes without a slot are not compared */
        for (size_t leaf = 0; leaf < leaves; leaf++)
            memset(states + (((groups - 1) * leaves + leaf) * GROUP + lane) * BLOCK, 0, BLOCK);
    print_digest("expand", states, groups * GROUP * leaves * BLOCK);
    k->row_tags(keys, (const uint8_t *)rows, numbers, items, row.width, tags);
    print_digest("row_tags", tags, items * 4);
    uint8_t *leaf_keys = fill(sessions * BLOCK), *corrections = fill(sessions * slots * HASH), *secrets = fill(4 * BLOCK);
    uint8_t *prints = fill(sessions * BLOCK), *hashes = fill(slots * HASH);
    const checks_t checks = {leaf_keys, corrections, secrets, 0};
    if (k->answer_checked(&paths, &table, &checks, &part, rows, columns, answers, prints)) abort();
    print_digest("answer_checked", answers, sessions * slots * columns * 4);
    print_digest("fingerprints", prints, sessions * BLOCK);
    int64_t *at = fill(slots * sizeof *at);
    for (size_t i = 0; i < slots; i++) at[i] = (int64_t)(i * 1000);
    k->leaf_hashes(leaf_keys, roots, at, slots, hashes);
    print_digest("leaf_hashes", hashes, slots * HASH);
    free(leaf_keys), free(corrections), free(secrets), free(prints), free(hashes), free(at);
    free(keys), free(roots), free(left), free(right), free(words), free(sums), free(rows), free(answers), free(tags);
    free(order), free(numbers), free(states), free(slot_sums);
}

static void check_projections(const kernel_t *k) {
    const size_t counts[] = {0, 1, 7, 63, 64, 65, 256, 1001};
    for (int n = 0; n < 8; n++)
        for (size_t element = 4; element <= 8; element += 4) {
            uint8_t *key = fill(BLOCK), *values = fill(counts[n] * element), *out = fill(PROJECTIONS * element);
            k->project(key, values, counts[n], element, out);
            print_digest("project", out, PROJECTIONS * element);
            free(key), free(values), free(out);
        }
}

static void check_noise(void) {
    enum { COUNT = 4096 };
    uint64_t *words = fill(COUNT * 16);
    int64_t *values = fill(COUNT * 8);
    uint8_t *verdicts = fill(COUNT);
    for (int bits = 0; bits <= NOISE_BITS; bits += 10) {
        judge_proposals(words, COUNT, (envelope_t){bits, 0x58b90bfbe8e7bcd5, (uint64_t)1 << 49}, values, verdicts);
        print_digest("noise values", values, COUNT * 8);
        print_digest("noise verdicts", verdicts, COUNT);
    }
    free(words), free(values), free(verdicts);
}

static void check_placement(const kernel_t *k) {
    const uint32_t catalogues[] = {1, 2, 50, 3883, 2147483647};
    uint8_t *key = fill(BLOCK);
    uint64_t *drawn = fill(300 * 8);
    int64_t values[300], slot_of[100];
    for (int c = 0; c < 5; c++)
        for (int backwards = 0; backwards < 2; backwards++) {
            for (int i = 0; i < 300; i++) values[i] = (int64_t)(drawn[i] % catalogues[c]);
            permute(k, key, catalogues[c], backwards, values, 300);
            print_digest("permute", values, sizeof values);
        }
    for (int i = 0; i < 300; i++) values[i] = (int64_t)(drawn[i] % 110);
    match(values, 100, 3, 110, slot_of);
    print_digest("match", slot_of, sizeof slot_of);
    free(key), free(drawn);
}

int main(void) {
    int ran = 0;
    for (int i = 0; i < KERNELS; i++) {
        const kernel_t *k = kernels[i];
        if (!k->available()) continue;
        fprintf(stderr, "%s\n", k->name);
        printf("# run %d\n", ran++);
        state = 1;
        check_streams(k);
        check_noise();
        check_projections(k);
        check_placement(k);
        const size_t widths[] = {1, 5, 16, 33, 65};
        for (int w = 0; w < 5; w++) {
            check_device(k, 13, 6, row_of(widths[w], 4));
            check_device(k, 3, 0, row_of(widths[w], 8));
            check_server(k, 5, 1, 47, 6, row_of(widths[w], 4));
            check_server(k, 2, 7, 300, 9, row_of(widths[w], 8));
            check_server(k, 1, 2, 1, 0, row_of(widths[w], 4));
        }
    }
    return ran == 0;
}
