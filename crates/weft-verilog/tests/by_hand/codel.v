/* verilator lint_off WIDTH */
// CoDel (RFC 8289) as fixed function, written by hand: one adder and one table for the control law.
module codel_by_hand (
  input  wire clk,
  input  wire reset,
  input  wire [1:0] moment,
  input  wire [62:0] now,
  input  wire [62:0] packet_arrived,
  input  wire [25:0] node_bytes,
  input  wire [9:0] drops,
  output wire [2:0] verdict
);
  localparam TARGET = 64'd5000000, INTERVAL = 64'd100000000;
  reg [63:0] first_above, drop_next;
  reg [9:0] count, last_count;
  reg dropping, entered;

  wire dequeue = moment == 2'd1, empty = moment == 2'd2;
  wire [63:0] sojourn = {1'b0, now} - {1'b0, packet_arrived};
  wire good = $signed(sojourn) < $signed(TARGET) | node_bytes <= 26'd1514;
  wire fresh = first_above == 64'd0;
  wire bad = ~good & ~fresh & $signed(first_above) <= $signed({1'b0, now});

  wire first = drops == 10'd0;
  wire enter = first & ~dropping & bad;
  wire again = ~first & ~entered & bad;

  // The count of the drops before, if they were not long ago.
  wire [10:0] delta = count - last_count;
  wire [63:0] since = {1'b0, now} - drop_next;
  wire goes_on = ~delta[10] & delta[9:0] > 10'd1 & $signed(since) < $signed(64'd1600000000);
  wire [9:0] start = goes_on ? delta[9:0] : 10'd1;

  wire [62:0] step;
  codel_step table_of_steps (.n(first ? start : count), .step(step));
  wire [63:0] next = (first ? {1'b0, now} : drop_next) + {1'b0, step};
  wire due = $signed(first ? drop_next : next) <= $signed({1'b0, now});
  wire more = (first ? dropping & bad : again) & due;

  assign verdict = {1'b0, dequeue & (enter | more), 1'b0};

  always @(posedge clk)
    if (reset) begin
      first_above <= 0; drop_next <= 0; count <= 0; last_count <= 0; dropping <= 0; entered <= 0;
    end else if (dequeue) begin
      first_above <= good ? 64'd0 : fresh ? {1'b0, now} + INTERVAL : first_above;
      if (enter | again) drop_next <= next;
      if (enter) begin
        count <= start; last_count <= start; dropping <= 1'b1;
      end else if (more & count != 10'd1023)
        count <= count + 10'd1;
      if ((first ? dropping : ~entered) & ~bad) dropping <= 1'b0;
      if (first) entered <= enter;
    end else if (empty) begin
      first_above <= 0; dropping <= 0;
    end
endmodule
/* verilator lint_on WIDTH */
