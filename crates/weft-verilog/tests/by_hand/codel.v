/* verilator lint_off WIDTH */
// CoDel as fixed function, written by hand: one adder and one table for the control law.
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
  reg [63:0] above_at, next_at;
  reg [7:0] count, count_before;
  reg dropping, entering;

  wire dequeue = moment == 2'd1, empty = moment == 2'd2;
  wire [63:0] sojourn = {1'b0, now} - {1'b0, packet_arrived};
  wire bad = $signed(sojourn) >= $signed(TARGET) & node_bytes > 26'd1514;
  wire fresh = above_at == 64'd0;
  wire late = bad & ~fresh & $signed(above_at) <= $signed({1'b0, now});
  wire acts = ~entering & late;

  // The count of the drops before, if they were not long ago.
  wire [8:0] delta = count - count_before;
  wire [63:0] since = {1'b0, now} - next_at;
  wire again = ~delta[8] & delta[7:0] > 8'd1 & $signed(since) < $signed(64'd1600000000);
  wire [7:0] start = again ? delta[7:0] : 8'd1;

  wire [62:0] step;
  codel_step table_of_steps (.n(dropping ? count : start), .step(step));
  wire [63:0] stepped = (dropping ? next_at : {1'b0, now}) + {1'b0, step};
  wire [63:0] next = dropping & drops == 10'd0 ? next_at : stepped;
  wire due = $signed(next) <= $signed({1'b0, now});

  assign verdict = {1'b0, dequeue & acts & (due | ~dropping), 1'b0};

  always @(posedge clk)
    if (reset) begin
      above_at <= 0; next_at <= 0; count <= 0; count_before <= 0; dropping <= 0; entering <= 0;
    end else if (dequeue) begin
      above_at <= ~bad ? 64'd0 : fresh ? {1'b0, now} + INTERVAL : above_at;
      entering <= acts & ~dropping;
      if (acts) begin
        next_at <= next;
        dropping <= 1'b1;
        if (~dropping) begin
          count <= start; count_before <= start;
        end else if (due & count != 8'hff)
          count <= count + 8'd1;
      end else
        dropping <= dropping & entering;
    end else if (empty) begin
      above_at <= 0; dropping <= dropping & entering; entering <= 0;
    end
endmodule
/* verilator lint_on WIDTH */
