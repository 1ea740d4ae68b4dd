import java.util.function.Function;

import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Writes a plan of Spark as JSON, with every field of every node: TreeNode.toJSON leaves some out (how errors are treated, escape characters)
 * and cuts lists of strings off. No logic is here: what a node means is decided in Python.
 *
 * A node is {"class": …, "fields": {…}}, an expression has "type" and "deterministic" too. Fields of a second list of parameters, which have
 * no names, are other0, other1 …. What is neither a node nor a plain value is {"other": its class, "text": …}.
 */
public class PlanText implements Function {
    private static final String CATALYST = "org.apache.spark.sql.catalyst.";

    public Object apply(Object plan) {
        StringBuilder out = new StringBuilder();
        write(plan, out);
        return out.toString();
    }

    private void write(Object one, StringBuilder out) {
        if (one == null || one instanceof scala.None$) {
            out.append("null");
        } else if (one instanceof scala.Some) {
            write(((scala.Some) one).value(), out);
        } else if (one instanceof Boolean || one instanceof Integer || one instanceof Long || one instanceof Short || one instanceof Byte) {
            out.append(one.toString());
        } else if (one instanceof String || one instanceof UTF8String || one instanceof Character) {
            quoted(one.toString(), out);
        } else if (one instanceof DataType) {
            out.append("{\"type\":");
            quoted(((DataType) one).catalogString(), out);
            out.append('}');
        } else if (one instanceof scala.collection.Seq) {
            scala.collection.Iterator each = ((scala.collection.Seq) one).iterator();
            out.append('[');
            while (each.hasNext()) {
                write(each.next(), out);
                if (each.hasNext()) {
                    out.append(',');
                }
            }
            out.append(']');
        } else if (one instanceof CatalogTable) {
            out.append("{\"table\":");
            quoted(((CatalogTable) one).identifier().unquotedString(), out);
            out.append('}');
        } else if (one instanceof ExprId) {
            out.append("{\"id\":").append(((ExprId) one).id()).append('}');
        } else if (one instanceof scala.Product && isWalked(one)) {
            product((scala.Product) one, out);
        } else {
            out.append("{\"other\":");
            quoted(one.getClass().getName(), out);
            out.append(",\"text\":");
            String text = String.valueOf(one);
            quoted(text.length() > 200 ? text.substring(0, 200) : text, out);
            out.append('}');
        }
    }

    private boolean isWalked(Object one) {
        String name = one.getClass().getName();
        return one instanceof TreeNode || name.startsWith(CATALYST) || name.startsWith("scala.Tuple");
    }

    private void product(scala.Product one, StringBuilder out) {
        out.append("{\"class\":");
        String name = one.getClass().getName();
        quoted(name.startsWith(CATALYST) ? name.substring(CATALYST.length()) : name, out);
        if (one instanceof LogicalPlan) {
            out.append(",\"step\":true");
        }
        if (one instanceof Expression) {
            expression((Expression) one, out);
        }
        out.append(",\"fields\":{");
        int at = 0;
        for (; at < one.productArity(); at++) {
            field(at, one.productElementName(at), one.productElement(at), out);
        }
        if (one instanceof TreeNode) {
            scala.collection.Iterator others = ((TreeNode) one).otherCopyArgs().iterator();
            for (int i = 0; others.hasNext(); i++) {
                field(at++, "other" + i, others.next(), out);
            }
        }
        out.append("}}");
    }

    private void field(int at, String name, Object value, StringBuilder out) {
        if (at > 0) {
            out.append(',');
        }
        quoted(name, out);
        out.append(':');
        write(value, out);
    }

    private void expression(Expression one, StringBuilder out) {
        out.append(",\"deterministic\":").append(one.deterministic());
        String type = null;
        try {
            type = one.dataType().catalogString();
        } catch (Exception error) {
            type = null; // a frame of a window, and what is not resolved, have none
        }
        if (type != null) {
            out.append(",\"type\":");
            quoted(type, out);
        }
    }

    private void quoted(String text, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", new Object[] {new Integer((int) c)}));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
