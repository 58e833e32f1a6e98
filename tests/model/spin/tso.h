/* Memory as x86-TSO has it, for models in Promela: stores wait in their process's buffer, in order, until they drain.
 *
 * Every word has one writing process, so a process knows its own words and never loads them back. An exchange waits for
 * the buffer and is visible at once; a plain STORE is visible whenever memory_system() pleases. A killed process's
 * buffer still drains: its successor, who gets the kernel's lock, begins when it has (SETTLED).
 *
 * The model defines WORDS, WRITERS and STORES (the greatest number of stores that wait at once).
 */
byte memory[WORDS];
chan buffer[WRITERS] = [STORES] of { byte, byte };

#define LOAD(word) memory[word]
#define STORE(process, word, value) buffer[process]!(word), (value)
#define EXCHANGE(process, word, value) d_step { empty(buffer[process]) -> memory[word] = (value) }
#define SETTLED(process) empty(buffer[process])

active proctype memory_system() {
  byte word, value;
end:
  do
  :: d_step { nempty(buffer[0]) -> buffer[0]?word, value; memory[word] = value; word = 0; value = 0 }
#if WRITERS > 1
  :: d_step { nempty(buffer[1]) -> buffer[1]?word, value; memory[word] = value; word = 0; value = 0 }
#endif
#if WRITERS > 2
  :: d_step { nempty(buffer[2]) -> buffer[2]?word, value; memory[word] = value; word = 0; value = 0 }
#endif
  od
}
